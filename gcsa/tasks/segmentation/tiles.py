"""Large pictures in tiles whose results are those of the whole, up to rounding.

A pixel's outputs depend on what lies within `margin` pixels of it, the receptive field. So each tile is read with that margin
around it, its outputs are kept without it, and nothing is blended. Objects are found in each tile, but suppressed and drawn
once, for the whole picture: an object on the border of two tiles is no special case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.images.intensity import normalize
from gcsa.images.windows import WindowedImage
from gcsa.tasks.segmentation.pose import TransformedImage, objects_after, reading_pose, turned
from gcsa.tasks.segmentation.segmenter import Segmenter, mirrored, placements
from gcsa.tasks.segmentation.stars import Labels, Objects, candidates, draw, suppress

TILE = 640
"""Pixels a side of a tile without its margin: gcsa_unet_tiny took 1.0 to 1.5 gigabytes for 4 to 12 of these."""
WHOLE = 1400**2
"""Pixels of a picture up to which it is read as one tile."""
MOST_WHOLE = 4096**2
"""Pixels of a picture that a network whose attention reaches everywhere can be asked for."""


@dataclass(frozen=True)
class Segmented:
    """A label map (H, W) and, of instances, its objects: number i of the map is `objects[i - 1]`; or of masks the number of classes."""

    labels: Labels
    objects: Objects | None
    num_classes: int | None = None


@dataclass(frozen=True)
class Tile:
    """Rows `top` to `bottom` and columns `left` to `right` of a picture."""

    top: int
    left: int
    bottom: int
    right: int

    def grown(self, by: int, shape: tuple[int, int]) -> Tile:
        """With `by` pixels more on each side, where the picture has them."""
        bottom, right = min(shape[0], self.bottom + by), min(shape[1], self.right + by)
        return Tile(max(0, self.top - by), max(0, self.left - by), bottom, right)


def tiles(shape: tuple[int, int], side: int, margin: int = 0) -> list[Tile]:
    """All of a picture, in tiles of at most `side` pixels, and `margin` more where they end with the picture, beyond which
    nothing has to be read."""
    rows, columns = (_cuts(length, side, margin) for length in shape)
    return [Tile(top, left, bottom, right) for top, bottom in pairwise(rows) for left, right in pairwise(columns)]


def _cuts(length: int, side: int, margin: int) -> list[int]:
    """Where a length is cut into equal parts, and both its ends."""
    inner = max(1, length - 2 * margin)
    step = -(-inner // -(-inner // side))
    return [0, *range(margin + step, margin + inner, step), length]


def tiled(segmenter: Segmenter, shape: tuple[int, int], side: int | None) -> list[Tile]:
    """The tiles in which a picture is read: one where it is small. Raises ValueError for a large one where attention reaches
    everywhere, and for a side that is below 1, or would cut what such attention sees."""
    if side is not None and side < 1:
        raise UserError(f"a tile of {side} pixels holds nothing: use 1 or more")
    pixels = shape[0] * shape[1]
    if segmenter.margin is None:
        if pixels > MOST_WHOLE:
            raise UserError(
                f"{shape[0]} x {shape[1]} pixels are too many for one pass, and this network cannot be read in tiles, for it sees "
                "everything: train one with a number in each of its radii, or cut the picture"
            )
        if side is not None and side < max(shape):
            raise UserError(
                f"a tile of {side} pixels is less than this network reads, for it sees everything: leave it out"
            )
        return tiles(shape, max(shape))
    if side is None:
        side = TILE if pixels > WHOLE else max(shape)
    return tiles(shape, side, segmenter.margin)


def outputs(
    segmenter: Segmenter, source: WindowedImage, tile: Tile, scale: tuple[float, float], least: tuple[int, int] = (0, 0)
) -> Tensor:
    """What `segmenter.maps` would give of the whole picture, for the pixels of `tile`: (outputs, h, w).

    least: rows and columns that the network reads at least, where there are as many.
    """
    windows = _windows(segmenter, source.shape, tile, least)
    total: Tensor | None = None
    for rows, columns in windows:
        out = segmenter(_read(segmenter, source, rows, columns, scale)[None])[0]
        first, second = tile.top - rows.start, tile.left - columns.start
        out = out[:, first : first + tile.bottom - tile.top, second : second + tile.right - tile.left]
        total = out.clone() if total is None else total.add_(out)
    assert total is not None
    return total.div_(len(windows))


def _windows(
    segmenter: Segmenter, shape: tuple[int, int], tile: Tile, least: tuple[int, int] = (0, 0)
) -> list[tuple[range, range]]:
    """The rows and columns, counted as the picture's, that the outputs of `tile` need: for each way of filling up the picture."""
    ends = (tile.top, tile.bottom), (tile.left, tile.right)
    rows, columns = (
        [
            _window(start, stop, before, before + side + behind, segmenter, fewest)
            for before, behind in placements(side, segmenter.multiple, segmenter.least)
        ]
        for (start, stop), side, fewest in zip(ends, shape, least, strict=True)
    )
    return list(product(rows, columns))


def _window(start: int, stop: int, before: int, side: int, segmenter: Segmenter, fewest: int) -> range:
    """What the outputs from `start` to `stop` need of a length, which is filled up to `side` pixels, `before` of them in front
    of it: from and to multiples of the stride."""
    multiple, margin = segmenter.multiple, segmenter.margin
    if margin is None:
        return range(-before, side - before)
    first = max(0, start + before - margin) // multiple * multiple
    last = min(side, -(-(stop + before + margin) // multiple) * multiple)
    length = min(side, max(last - first, fewest, segmenter.least))
    first = min(first, side - length) - before
    return range(first, first + length)


def _read(
    segmenter: Segmenter, source: WindowedImage, rows: range, columns: range, scale: tuple[float, float]
) -> Tensor:
    """The normalised pixels (C, rows, columns), by reflection beyond the picture."""
    inside = [
        mirrored(torch.arange(part.start, part.stop), side).numpy()
        for part, side in zip((rows, columns), source.shape, strict=True)
    ]
    (top, bottom), (left, right) = ((int(part.min()), int(part.max()) + 1) for part in inside)
    picture = source.window(top, left, bottom, right)[np.ix_(inside[0] - top, inside[1] - left)]
    return torch.from_numpy(normalize(picture, *scale)).to(next(segmenter.parameters()))


def results(
    segmenter: Segmenter, source: WindowedImage, side: int | None, done: Callable[[float], object]
) -> Iterator[tuple[Tile, Tile, Tensor]]:
    """Each tile, the same with a pixel more on each side, and its outputs with that pixel; `done` hears which share is done.

    The network reads windows of one size: each takes the memory of the one before, where others would leave gaps in it.
    """
    scale = source.percentiles(segmenter.low, segmenter.high)
    parts = [(tile, tile.grown(1, source.shape)) for tile in tiled(segmenter, source.shape, side)]
    windows = [window for _, wider in parts for window in _windows(segmenter, source.shape, wider)]
    least = max(len(rows) for rows, _ in windows), max(len(columns) for _, columns in windows)
    for tile, wider in parts:
        yield tile, wider, outputs(segmenter, source, wider, scale, least)
        done(1 / len(parts))


@torch.inference_mode()
def segment(
    segmenter: Segmenter,
    source: WindowedImage,
    side: int | None = None,
    done: Callable[[float], object] = lambda share: None,
) -> Segmented:
    """The objects or classes of a picture, in tiles of `side` pixels (None: as they are needed); see `tiled` for what is refused.

    Objects are numbered from the highest score; what another one hides wholly is left out. The picture is read in its
    `reading_pose`.
    """
    group = segmenter.group
    g = reading_pose(source, group)
    found = _segment(segmenter, TransformedImage(source, group, g), side, done)
    back, shape = int(group.inverse[g]), (found.labels.shape[0], found.labels.shape[1])
    objects = None if found.objects is None else objects_after(found.objects, shape, group, back)
    return Segmented(np.ascontiguousarray(turned(found.labels, group, back)), objects, found.num_classes)


def _segment(
    segmenter: Segmenter, source: WindowedImage, side: int | None, done: Callable[[float], object]
) -> Segmented:
    found: list[Objects] = []
    labels: Labels = np.zeros(source.shape, np.int32)
    for tile, wider, maps in results(segmenter, source, side, done):
        if segmenter.task == "masks":
            classes = segmenter.labels(maps)
            inner = classes[
                tile.top - wider.top : tile.bottom - wider.top, tile.left - wider.left : tile.right - wider.left
            ]
            labels[tile.top : tile.bottom, tile.left : tile.right] = inner
            continue
        objects = candidates(maps, segmenter.threshold).moved(wider.top, wider.left)
        rows, columns = objects.points.T
        here = (rows >= tile.top) & (rows < tile.bottom) & (columns >= tile.left) & (columns < tile.right)
        found.append(objects[here])
    if segmenter.task == "masks":
        return Segmented(labels, None, segmenter.outputs)
    objects = suppress(Objects.joined(found), segmenter.overlap, source.shape)
    labels = draw(objects, source.shape)
    seen = np.zeros(len(objects) + 1, bool)
    for row in labels:
        seen[row] = True
    if not seen[1:].all():
        objects = objects[seen[1:]]
        labels = draw(objects, source.shape)
    return Segmented(labels, objects)
