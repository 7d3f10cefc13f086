"""Measurements, each a module: `python -m benchmarks.ROOM.NAME` from the repository writes benchmarks/results/NAME.json."""
