"""Measure speed and memory: `python -m benchmarks peers`; each choice runs modules of benchmarks/, one after the other.

Results are written to benchmarks/results/, a folder for each machine, with the commit; `python -m benchmarks.report` makes the README's tables of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHOICES = {
    "layers": ("speed.layers",),
    "models": ("speed.models", "speed.bfloat16", "speed.operators"),
    "export": ("speed.export",),
    "scaling": ("scaling.linear", "scaling.neighbourhood", "scaling.large_images"),
    "peers": ("peers.tax", "peers.block", "peers.revit_shape", "peers.poster"),
    "startup": ("speed.startup",),
    "deployment": ("speed.deployment", "text.transcribe"),
    "dense": ("dense.images",),
}


def main() -> int:
    """The command line; returns the first exit code that is not 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures speed and memory, side by side."
    )
    parser.add_argument(
        "what", choices=list(CHOICES), help="; ".join(f"{k}: {', '.join(v)}" for k, v in CHOICES.items())
    )
    parser.add_argument("options", nargs=argparse.REMAINDER, help="for the modules, such as --threads 1 --repeats 9")
    args = parser.parse_args()
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    for module in CHOICES[args.what]:
        print(f"== benchmarks.{module}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{module}", *args.options]
        code = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
