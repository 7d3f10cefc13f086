"""Measure speed and memory: `python benchmark.py peers`; each choice runs scripts of benchmarks/, one after the other.

Results are written to benchmarks/results/, with machine and commit, from which `python report.py` makes the README's tables.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "benchmarks"
CHOICES = {
    "layers": ("layers",),
    "models": ("models",),
    "export": ("export",),
    "scaling": ("linear", "neighbourhood", "large_images"),
    "peers": ("tax", "block", "revit_shape", "poster"),
    "startup": ("startup",),
}


def main() -> int:
    """The command line; returns the first exit code that is not 0."""
    parser = argparse.ArgumentParser(prog="benchmark.py", description="Measures speed and memory, side by side.")
    parser.add_argument(
        "what", choices=list(CHOICES), help="; ".join(f"{k}: {', '.join(v)}" for k, v in CHOICES.items())
    )
    parser.add_argument("options", nargs=argparse.REMAINDER, help="for the scripts, such as --threads 1 --repeats 9")
    args = parser.parse_args()
    for script in CHOICES[args.what]:
        print(f"== benchmarks/{script}.py", flush=True)
        code = subprocess.run([sys.executable, str(FOLDER / f"{script}.py"), *args.options]).returncode
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
