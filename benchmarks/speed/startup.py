"""Seconds from a fresh process to a first answer, after the imports of torch and timm: `python -m benchmarks.speed.startup`.

That is importing gcsa, and `create_model("gcsa_small", group="c8")`, or `gcsa.load` of published weights and one image that they answer.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.common import CPU, arguments, save, timing
from benchmarks.speed.deployment import WEIGHTS

PROGRAM = """
import sys, time
import torch, timm
start = time.perf_counter()
import gcsa
if len(sys.argv) == 1:
    timm.create_model("gcsa_small", group="c8")
else:
    import numpy as np
    weights, *shape = sys.argv[1:]
    gcsa.load(weights).predict([np.random.default_rng(0).integers(0, 256, [*map(int, shape)]).astype(np.uint8)])
print(time.perf_counter() - start, "escnn" in sys.modules)
"""
CASES: dict[str, tuple[str, ...]] = {
    'create_model("gcsa_small", group="c8")': (),
    "gcsa_pooled_small.pcam, a patch of 96 pixels": ("gcsa_pooled_small.pcam", "96", "96", "3"),
    "gcsa_ocr_tiny.print, a line of 40 x 480 pixels": ("gcsa_ocr_tiny.print", "40", "480", "3"),
    "gcsa_unet_tiny.nuclei, a field of 256 pixels": ("gcsa_unet_tiny.nuclei", "256", "256", "3"),
}


def first(case: tuple[str, ...]) -> tuple[float, bool]:
    """Seconds until a case has answered, and whether escnn was imported."""
    given = [str(WEIGHTS / case[0]), *case[1:]] if case else []
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *given]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, escnn = run.stdout.split()[-2:]
    return float(seconds), escnn == "True"


def main() -> None:
    args = arguments(__doc__)
    content = {}
    for name, case in CASES.items():
        with timing():
            runs = sorted(first(case) for _ in range(args.repeats))
        content[name] = {
            "median_seconds": runs[len(runs) // 2][0],
            "max_seconds": runs[-1][0],
            "escnn_imported": any(escnn for _, escnn in runs),
        }
    save("startup", content, CPU)


if __name__ == "__main__":
    main()
