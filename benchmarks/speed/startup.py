"""`create_model("gcsa_small", group="c8")` in a fresh process, after torch and timm: `python -m benchmarks.speed.startup`."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.common import CPU, arguments, save, timing

PROGRAM = """
import sys, time
import torch, timm
start = time.perf_counter()
import gcsa
timm.create_model("gcsa_small", group="c8")
print(time.perf_counter() - start, "escnn" in sys.modules)
"""


def create() -> tuple[float, bool]:
    """Seconds to import gcsa and create the model, and whether escnn was imported."""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    seconds, escnn = run.stdout.split()[-2:]
    return float(seconds), escnn == "True"


def main() -> None:
    args = arguments(__doc__)
    with timing():
        runs = [create() for _ in range(args.repeats)]
    content = {
        "warm": {
            "median_seconds": sorted(seconds for seconds, _ in runs)[len(runs) // 2],
            "max_seconds": max(seconds for seconds, _ in runs),
            "escnn_imported": any(escnn for _, escnn in runs),
        },
    }
    save("startup", content, CPU)


if __name__ == "__main__":
    main()
