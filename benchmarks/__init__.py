"""Measurements, each a module: `python -m benchmarks.PACKAGE.NAME` from the repository writes NAME.json
to benchmarks/results/, timings to a folder of their machine there."""
