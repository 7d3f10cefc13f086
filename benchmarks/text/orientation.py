"""Whether pages are seen the right way up: `python -m benchmarks.text.orientation FOLDER`.

FOLDER holds upright pages of `COLLECTIONS` as `OWNER+NAME__data__VOLUME__FILE`; none is in the repository. One page of each volume is
taken, then a second one, and so on. The network and the rule before it, by profiles of the ink, are exactly equivariant, so that one
orientation tells all four. JPEG files are decoded at a half, a quarter or an eighth of their size where at least 2,048 pixels a side
are left.

benchmarks/results/pages/orientation.json was put together by hand from runs on the same pages in the same order, before this script was here.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import uniform_filter
from torch.nn import functional as F

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import write_json
from gcsa._utils.errors import UserError
from gcsa.tasks.recognition.pages.orientation import find_orientation
from gcsa.training.results import git_commit, machine

ROOT = Path(__file__).parents[2]
COLLECTIONS = {
    "Gallicorpora/HTR-MSS-15e-Siecle": "707a106f",
    "Gallicorpora/HTR-imprime-gothique-16e-siecle": "35b02f7f",
    "Gallicorpora/HTR-incunable-15e-siecle": "6e050f91",
    "HTR-United/CREMMA-AN-TestamentsDePoilus": "8ffa4a8c",
    "HTR-United/CREMMA-MSS-18": "e4a89141",
    "HTR-United/cremma-medieval": "bc4a105f",
    "HTR-United/tapuscorpus": "f18a6afe",
    "OCR-D/gt_structure_text": "379f597a",
}
"""On GitHub, with the commit that the pages are of."""
MIXED = "europeana-random-selection"
"""A volume of pages that have nothing to do with each other."""
DECODED = 2048
STRIPS = 8
WITHOUT_TEXT = ("gerstner_mechaniktafeln01_1831_0019", "vischer_aesthetikregister_1858_0081")
"""A plate of drawings, in two files, and an endpaper with a barcode."""
SKEWS = (1, 3, 7, 15)
EVERY, ROTATED = 3, 20
"""One page in so many, up to so many of them, is also rotated, and every second of these skewed."""


def lines_stand(grey: Array) -> bool:
    """The rule before: the ink (H, W) changes more from column to column than from row to row, summed over strips."""
    factor = max(1, min(grey.shape) // 1000)
    page = F.avg_pool2d(torch.from_numpy(grey.astype(np.float32))[None, None], factor)[0, 0].double().numpy()
    paper = uniform_filter(page, 31, mode="constant") / uniform_filter(np.ones_like(page), 31, mode="constant")
    ink = np.clip(paper - page, 0, None)
    return _changes(ink.T) > _changes(ink)


def _changes(ink: Array) -> float:
    width = -(-ink.shape[1] // STRIPS)
    strips = [ink[:, start : start + width] for start in range(0, ink.shape[1], width)]
    return sum(float(np.square(np.diff(strip.mean(1))).mean()) for strip in strips)


def volume_of(file: Path) -> str:
    return "__".join(file.name.split("__")[:3])


def collection_of(file: Path) -> str:
    """Raises ValueError for a file of none of `COLLECTIONS`."""
    name = file.name.partition("__")[0].replace("+", "/")
    if name not in COLLECTIONS:
        raise UserError(f"{file} is of none of {', '.join(COLLECTIONS)}: name it OWNER+NAME__data__VOLUME__FILE")
    return name


def in_turn(folder: Path) -> list[Path]:
    """The files of a folder, the first of each volume in front of the second of any."""
    volumes: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(folder.iterdir()):
        volumes[file.name if MIXED in file.name else volume_of(file)].append(file)
    most = max(map(len, volumes.values()))
    return [files[i] for i in range(most) for files in volumes.values() if i < len(files)]


def grey_pixels(file: Path) -> Array:
    with Image.open(file) as image:
        if image.format == "JPEG":
            image.draft("L", (DECODED, DECODED))
        return np.asarray(image.convert("L"))


def has_text(file: Path) -> bool:
    return not any(name in file.name for name in WITHOUT_TEXT)


def rotated_and_skewed(files: list[Path]) -> dict[str, Any]:
    """How many of the pages are seen as they are rotated, and as upright where they are skewed; of how many."""
    rotated, skewed = [0, 0], {skew: [0, 0] for skew in SKEWS}
    for number, file in enumerate(files):
        grey = grey_pixels(file)
        rotated[0] += find_orientation(np.rot90(grey, number % 4)).degrees == 90 * (number % 4)
        rotated[1] += 1
        for skew in SKEWS if number % 2 == 0 else ():
            slanted = Image.fromarray(grey).rotate(
                skew if number % 4 == 0 else -skew, Image.Resampling.BICUBIC, fillcolor=int(np.median(grey))
            )
            skewed[skew][0] += find_orientation(np.asarray(slanted)).degrees == 0
            skewed[skew][1] += 1
    return {"rotated": rotated, "skewed": skewed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=171, help="at most (default 171)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/pages/orientation.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    commit, files = git_commit(), in_turn(args.folder)[: args.pages]
    wrong: list[dict[str, Any]] = []
    sideways = 0
    collections = {name: COLLECTIONS[name] for name in sorted(set(map(collection_of, files)))}
    for file in files:
        grey = grey_pixels(file)
        found = find_orientation(grey)
        if found.degrees or found.blank:
            wrong.append({"file": file.name, "degrees": found.degrees, "blank": found.blank})
        sideways += lines_stand(grey)
    results: dict[str, Any] = {
        "pages": len(files),
        "volumes": len(set(map(volume_of, files))),
        "collections": collections,
        "network": {"wrong": len(wrong), "which": wrong},
        "profiles": {"on_their_side": sideways},
        "without_text": [file.name for file in files if not has_text(file)],
        **rotated_and_skewed([file for file in files[::EVERY] if has_text(file)][:ROTATED]),
    }
    write_json(args.output, {**results, "commit": commit, "machine": machine()})


if __name__ == "__main__":
    main()
