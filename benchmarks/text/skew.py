"""How exactly the skew of a page is estimated: `python -m benchmarks.text.skew FOLDER`.

FOLDER is that of `benchmarks.text.orientation`. Each page is rotated by an angle from -15 to 15 degrees on a ground of the colour of its
paper. The error is the estimate minus this angle and minus the estimate on the page as it is, which may be skewed itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.text.orientation import ROOT, grey_pixels, has_text, in_turn
from benchmarks.text.skewed_pages import rotated
from gcsa._utils.atomic import write_json
from gcsa.tasks.recognition.pages.detector import detect_lines
from gcsa.tasks.recognition.pages.skew import skew
from gcsa.training.results import git_commit, machine

ANGLES = (1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -1, 2, -3, 4, -5, 8, -11, 12, -15)
"""Degrees counter-clockwise: that of the first page, of the second one, and so on."""
SOUGHT = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    commit, rows = git_commit(), []
    for file, angle in zip(filter(has_text, in_turn(args.folder)), ANGLES, strict=False):
        page = Image.fromarray(grey_pixels(file)).convert("RGB")
        scans = (np.asarray(picture) for picture in (page, rotated(page, angle)[0]))
        own, estimate = (skew(detect_lines(scan), scan) for scan in scans)
        rows.append({"file": file.name, "angle": angle, "own": own, "error": estimate - own - angle})
        print(rows[-1], flush=True)
    errors = np.abs([row["error"] for row in rows])
    content: dict[str, Any] = {
        "pages": len(rows),
        "mean": float(errors.mean()),
        "percentile_95": float(np.percentile(errors, 95)),
        "largest": float(errors.max()),
        "within": {"degrees": SOUGHT, "share": float((errors <= SOUGHT).mean())},
        "rows": rows,
    }
    print(
        write_json(ROOT / "benchmarks/results/pages/skew.json", {**content, "commit": commit, "machine": machine()}),
    )


if __name__ == "__main__":
    main()
