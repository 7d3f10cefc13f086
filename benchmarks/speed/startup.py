"""`create_model("gcsa_small_c8")` in a fresh process, after torch and timm: `python -m benchmarks.speed.startup`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.common import CPU, arguments, save, timing

PROGRAM = """
import sys, time
import torch, timm
start = time.perf_counter()
import gcsa
timm.create_model("gcsa_small_c8")
print(time.perf_counter() - start, "escnn" in sys.modules)
"""


def create(cache: str) -> tuple[float, bool]:
    """Seconds to import gcsa and create the model with this cache folder, and whether escnn was imported."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "GCSA_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, escnn = run.stdout.split()[-2:]
    return float(seconds), escnn == "True"


def main() -> None:
    args = arguments(__doc__)
    with tempfile.TemporaryDirectory() as cache, timing():
        cold, cold_escnn = create(cache)
        warm = [create(cache) for _ in range(args.repeats)]
    content = {
        "cold": {"seconds": cold, "escnn_imported": cold_escnn},
        "warm": {
            "median_seconds": sorted(seconds for seconds, _ in warm)[len(warm) // 2],
            "max_seconds": max(seconds for seconds, _ in warm),
            "escnn_imported": any(escnn for _, escnn in warm),
        },
    }
    save("startup", content, CPU)


if __name__ == "__main__":
    main()
