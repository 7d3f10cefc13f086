"""A large picture through gcsa segment's tiles: minutes, peak memory, and the same objects as of its parts.

`python -m benchmarks.dense.mosaic gcsa_unet_tiny.nuclei --side 8192`. The picture is a mosaic of real nuclei images of 256 x 256,
turned and mirrored in every way, so that nothing in it repeats with the tiles; it is written as a TIFF file in tiles of 256
pixels. Memory is the growth of the process beyond what it holds once the weights are loaded, in a process of its own. Around
eight crossings of tiles, the label map is compared with one of a window of that place alone, with the margin around it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch

from benchmarks.common import alone, arguments, clock, resident_peak, save, timed
from gcsa._utils.arrays import Array
from gcsa.actions import transform_points, transformed_shape
from gcsa.data.storage import data_root
from gcsa.images.reader import read_picture
from gcsa.images.slides import open_window_source
from gcsa.images.windows import Windowed, WindowedImage
from gcsa.symmetry import canonical_pose
from gcsa.tasks import load
from gcsa.tasks.segmentation.metrics import changes
from gcsa.tasks.segmentation.stars import draw, find_candidates, suppress
from gcsa.tasks.segmentation.tiles import TILE, Tile, choose_tiles, tile_maps

PART = 256
REACH = 256
"""Pixels around a crossing that are segmented anew."""


def mosaic(height: int, width: int) -> Array:
    """The picture (H, W, 3)."""
    parts = [read_picture(path, 3) for path in sorted((data_root(None) / "nuclei/test/images").glob("*.png"))]
    parts = [part for part in parts if part.shape[:2] == (PART, PART)]
    chosen = np.random.default_rng(0)
    picture = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, PART):
        for left in range(0, width, PART):
            part = np.rot90(parts[chosen.integers(len(parts))], chosen.integers(4))[:, :: chosen.choice([-1, 1])]
            picture[top : top + PART, left : left + PART] = part[: height - top, : width - left]
    return picture


def one_pass(weights: str, file: Path, threads: int, in_memory: int) -> dict[str, Any]:
    """Segments the picture once. Run it by `alone`."""
    torch.set_num_threads(threads)
    predictor: Any = load(weights)
    predictor.fold()
    predictor.predict(np.zeros((PART, PART, 3), np.uint8))  # what is loaded with the first image
    before, (began, others) = resident_peak(), clock()
    with open_window_source(file, predictor.network.in_chans, in_memory) as image:
        result = predictor.predict(image)
    now, after = clock()
    return {
        "seconds": now - began,
        "others": after - others,
        "megabytes": resident_peak() - before,
        "objects": len(result.objects),
        "differences": differences(predictor, file, result.label_map),
    }


def differences(predictor: Any, file: Path, label_map: Windowed) -> list[tuple[int, int]]:
    """Pixels and objects that differ around crossings of tiles, from windows that have no border there."""
    network, group = predictor.network, predictor.group
    with open_window_source(file, network.in_chans) as image, torch.inference_mode():
        limits = predictor.limits(image)
        pose = canonical_pose(image, group)
        shape = transformed_shape(image.shape, group, pose)
        cuts = np.array([(tile.bottom, tile.right) for tile in choose_tiles(network, shape, None)], float)
        crossings = transform_points(cuts, shape, group, int(group.inverse[pose])).round().astype(int)
        within = ((crossings >= REACH) & (crossings <= np.array(image.shape) - REACH)).all(1)
        return [around(predictor, image, label_map, row, column, limits) for row, column in crossings[within][:8]]


def around(
    predictor: Any, image: WindowedImage, label_map: Windowed, row: int, column: int, limits: tuple[float, float]
) -> tuple[int, int]:
    """What differs within 64 pixels of the crossing there."""
    tile = Tile(row - REACH, column - REACH, row + REACH, column + REACH)
    maps = tile_maps(predictor.network, image, tile, limits)
    shape = (2 * REACH, 2 * REACH)
    objects = suppress(find_candidates(maps, predictor.prob_thresh), predictor.nms_thresh, shape)
    inner = slice(REACH - 64, REACH + 64)
    found = label_map.window(row - 64, column - 64, row + 64, column + 64)
    return changes(found, draw(objects, shape)[inner, inner])


def main() -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("weights")
        parser.add_argument("--side", type=int, default=8192)

    args = arguments(__doc__, add)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mosaic.tif"
        tifffile.imwrite(file, mosaic(args.side, args.side), tile=(PART, PART), photometric="rgb")
        begun = time.monotonic()
        found = alone(one_pass, args.weights, file, args.threads, 1)
    timed.append((time.monotonic() - begun, found.pop("others")))
    save(f"mosaic_{args.side}", {"weights": args.weights, "side": args.side, "tile": TILE, **found})


if __name__ == "__main__":
    main()
