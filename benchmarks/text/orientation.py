"""Whether pages are seen the right way up: `python -m benchmarks.text.orientation FOLDER --output FILE`.

FOLDER holds upright pages of public collections, `COLLECTION__data__VOLUME__FILE`; none of them is in the repository, and the result
names the repositories and commits. Each page is shown in four orientations, and some with a skew. Other detectors are measured where
they can be imported: docorient, and Tesseract's through tesserocr with the folder of osd.traineddata in TESSDATA_PREFIX.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import write_json
from gcsa.images.reader import read_levels
from gcsa.tasks.recognition.pages.orientation import find_orientation
from gcsa.training.results import git_commit, machine

SKEWS = (1, 3, 7, 15)
Detector = Callable[[Array], int | None]
"""From grey levels (H, W) to degrees counter-clockwise, None where it cannot tell."""


def ours(levels: Array) -> int | None:
    found = find_orientation(levels)
    return None if found.blank else found.degrees


def docorient(levels: Array) -> int | None:
    from docorient import detect_orientation

    return int(detect_orientation(Image.fromarray(levels)).angle) % 360


def tesseract() -> Detector:
    from tesserocr import PSM, PyTessBaseAPI

    api = PyTessBaseAPI(path=os.environ["TESSDATA_PREFIX"], lang="osd", psm=PSM.OSD_ONLY)

    def detect(levels: Array) -> int | None:
        api.SetImage(Image.fromarray(levels))
        found = api.DetectOrientationScript()
        return None if found is None else (360 - int(found["orient_deg"])) % 360

    return detect


def skewed(levels: Array, degrees: float) -> Array:
    image = Image.fromarray(levels)
    return np.asarray(image.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=int(np.median(levels))))


def measure(
    detect: Detector, files: list[Path], rotations: tuple[int, ...], skews: tuple[float, ...], every: int
) -> dict[str, Any]:
    """Right answers of `detect` at each of `rotations` (degrees), and with each skew for every so manyth page."""
    right, total, wrong = defaultdict(int), defaultdict(int), []
    for i, file in enumerate(files):
        levels = read_levels(file, upright=False)
        cases = [("0", degrees, levels) for degrees in rotations]
        if i % every == 0:
            cases += [(str(skew), 0, skewed(levels, sign * skew)) for skew in skews for sign in (-1, 1)]
        for skew, degrees, shown in cases:
            found = detect(np.ascontiguousarray(np.rot90(shown, degrees // 90)))
            total[skew] += 1
            right[skew] += found == degrees
            if found != degrees:
                wrong.append({"file": file.name, "skew": skew, "shown": degrees, "found": found})
        print(i + 1, dict(right), dict(total), flush=True)
    return {"right": dict(right), "shown": dict(total), "pages": len(files), "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--systems", nargs="+", default=["gcsa"])
    parser.add_argument("--pages", type=int, default=10_000, help="at most, taken in turn from the volumes")
    parser.add_argument(
        "--upright-only", action="store_true", help="of an exactly equivariant detector, one pose tells all"
    )
    parser.add_argument("--skew-every", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    volumes = defaultdict(list)
    for file in sorted(args.folder.iterdir()):
        volumes["__".join(file.name.split("__")[:3])].append(file)
    in_turn = [
        volume[i] for i in range(max(map(len, volumes.values()))) for volume in volumes.values() if i < len(volume)
    ]
    files = in_turn[: args.pages]
    rotations = (0,) if args.upright_only else (0, 90, 180, 270)
    results: dict[str, Any] = {}
    for name in args.systems:
        if name != "gcsa" and find_spec({"tesseract": "tesserocr"}.get(name, name)) is None:
            continue
        detect = {"gcsa": lambda: ours, "docorient": lambda: docorient, "tesseract": tesseract}[name]()
        results[name] = measure(detect, files, rotations, SKEWS, args.skew_every)
        results[name]["volumes"] = len({"__".join(file.name.split("__")[:3]) for file in files})
        write_json(args.output, {"systems": results, "commit": git_commit(), "machine": machine()})


if __name__ == "__main__":
    main()
