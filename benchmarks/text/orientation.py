"""Whether pages are seen the right way up, and how sure that is: `python -m benchmarks.text.orientation FOLDER OUTPUT.json`.

FOLDER/KIND/VOLUME__PAGE.png are upright pages, of which none is in the repository, and none was used in training. KIND is a script, or one
of `WITHOUT`: pages that have no orientation to be known, and scripts that the network never saw. The network is exactly equivariant: one
orientation of a page tells all four, which is verified on one page in `EVERY`. `--tiles` keeps the tiles of pages between runs, and `--peers`
takes the answers of `benchmarks/peers/orientation_peers.py` into the result, in which those of other systems stay. The temperature was chosen
on the volumes of `has_chosen`.

`--skew` measures `page_skew` instead: each page is rotated by an angle of 1 to 15 degrees on a ground of the colour of its paper. The error
is the estimate minus this angle and minus the estimate on the page as it is, which may be skewed itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import write_json
from gcsa.tasks.recognition.pages.orientation import (
    LEAST_PROBABILITY,
    find_orientation,
    orientation_of,
    stored_scorer,
    tiles_of,
)
from gcsa.tasks.recognition.pages.page_skew import page_skew
from gcsa.training.results import git_commit, machine

WITHOUT = ("no text", "unknown scripts")
EVERY = 25
SKEWED = 60
"""Pages whose skew is measured, drawn by chance."""


def volume_of(name: str) -> str:
    """What stands in front of the last two underscores."""
    return name.rpartition("__")[0]


def grey_pixels(file: Path) -> Array:
    with Image.open(file) as image:
        return np.asarray(image.convert("L"))


def has_chosen(kind: str, name: str) -> bool:
    """Whether a page is of the half of the volumes on which the temperature was chosen."""
    return int(hashlib.md5((kind + volume_of(name)).encode()).hexdigest(), 16) % 2 == 0


def cached_tiles(file: Path, folder: Path | None) -> tuple[torch.Tensor, float]:
    """The tiles of a page, and the CPU seconds that they take."""
    stored = None if folder is None else folder / f"{file.parent.name}__{file.name}.npz"
    if stored is not None and stored.exists():
        content = np.load(stored)
        return torch.from_numpy(content["tiles"]).float(), float(content["seconds"])
    start = time.process_time()
    tiles = tiles_of(grey_pixels(file))
    seconds = time.process_time() - start
    if stored is not None:
        np.savez(stored, tiles=tiles.numpy().astype(np.float16), seconds=seconds)
    return tiles, seconds


def see(files: list[Path], tiles: Path | None) -> list[dict[str, Any]]:
    rows = []
    for file in files:
        page, seconds = cached_tiles(file, tiles)
        start = time.process_time()
        found = orientation_of(page, stored_scorer())
        rows.append(
            {
                "kind": file.parent.name,
                "file": file.name,
                "degrees": found.degrees,
                "probability": round(max(found.probabilities), 4),
                **({"blank": True} if found.blank else {}),
                "seconds": round(seconds + time.process_time() - start, 3),
            }
        )
    return rows


def rotated_alike(files: list[Path]) -> dict[str, Any]:
    """How many of the pages are seen alike in all four orientations, and by how much the probabilities differ."""
    most, alike = 0.0, 0
    for file in files:
        grey = grey_pixels(file)
        found = [find_orientation(np.rot90(grey, k)) for k in range(4)]
        back = [np.roll(one.probabilities, -k) for k, one in enumerate(found)]
        most = max(most, float(np.ptp(back, axis=0).max()))
        alike += all((one.degrees - 90 * k) % 360 == found[0].degrees for k, one in enumerate(found))
    return {"pages": len(files), "alike": alike, "largest_difference": most}


def skews(files: list[Path]) -> list[dict[str, Any]]:
    draw, rows = random.Random(0), []
    for file in draw.sample(files, min(SKEWED, len(files))):
        angle = draw.choice((-1, 1)) * round(draw.uniform(1, 15), 1)
        page = Image.fromarray(grey_pixels(file))
        paper = int(np.median(np.asarray(page)))
        start = time.process_time()
        own = page_skew(np.asarray(page))
        seconds = time.process_time() - start
        found = page_skew(np.asarray(page.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)))
        error = round(found - own - angle, 2)
        rows.append(
            {
                "kind": file.parent.name,
                "file": file.name,
                "angle": angle,
                "own": round(own, 2),
                "error": error,
                "seconds": seconds,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--tiles", type=Path)
    parser.add_argument("--peers", nargs="*", default=[], metavar="NAME=FILE.json")
    parser.add_argument("--skew", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    commit, files = git_commit(), sorted(args.folder.glob("*/*"))
    text = [file for file in files if file.parent.name not in WITHOUT]
    about = {"commit": commit, "machine": machine()}
    if args.skew:
        write_json(args.output, {"rows": skews([file for file in text if "held out" not in file.parent.name]), **about})
        return
    before = json.loads(args.output.read_text())["systems"] if args.output.exists() else {}
    content: dict[str, Any] = {
        "least_probability": LEAST_PROBABILITY,
        "systems": before | {"network": see(files, args.tiles)},
        "rotated": rotated_alike(text[::EVERY]),
        **about,
    }
    for peer in args.peers:
        name, _, file = peer.partition("=")
        content["systems"][name] = json.loads(Path(file).read_text())
    write_json(args.output, content)


if __name__ == "__main__":
    main()
