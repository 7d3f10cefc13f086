"""The maps of a network for an image of any size, tile by tile; up to rounding, they equal those of one pass over the whole.

An output depends on the pixels within `margin` of it, the receptive field. Each tile is therefore read with this margin around
it, and only its own outputs are kept. Nothing is blended. Beyond its border an image continues by reflection.

A network takes sides that `size_divisor` divides. Where an odd number of pixels is missing, the image cannot lie in the middle.
It is then read in both placements, and the mean is taken: this keeps quarter rotations and reflections exact.
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
from gcsa.tasks.segmentation.choices import TILE
from gcsa.tasks.segmentation.network import Segmenter

MAX_WHOLE = 1400**2
"""Pixels up to which an image is one tile by default."""
MAX_GLOBAL = 4096**2
"""Pixels up to which a network with global attention takes an image."""


@dataclass(frozen=True)
class Tile:
    """Rows `top` to `bottom` and columns `left` to `right` of an image."""

    top: int
    left: int
    bottom: int
    right: int

    def grown(self, by: int, shape: tuple[int, int]) -> Tile:
        """The tile with `by` more pixels on each side, as far as the image goes."""
        bottom, right = min(shape[0], self.bottom + by), min(shape[1], self.right + by)
        return Tile(max(0, self.top - by), max(0, self.left - by), bottom, right)

    def slices(self, top: int = 0, left: int = 0) -> tuple[slice, slice]:
        """The rows and columns of the tile in an array that begins at (top, left) of the image."""
        return slice(self.top - top, self.bottom - top), slice(self.left - left, self.right - left)


def split_into_tiles(shape: tuple[int, int], side: int, margin: int = 0) -> list[Tile]:
    """Equal tiles of at most `side` pixels that cover an image. Tiles at its border have up to `margin` more, since no margin
    is read beyond the border."""
    rows, columns = (_cuts(length, side, margin) for length in shape)
    return [Tile(top, left, bottom, right) for top, bottom in pairwise(rows) for left, right in pairwise(columns)]


def _cuts(length: int, side: int, margin: int) -> list[int]:
    """The cuts of a length into equal parts, both ends included."""
    inner = max(1, length - 2 * margin)
    step = -(-inner // -(-inner // side))
    return [0, *range(margin + step, margin + inner, step), length]


def choose_tiles(network: Segmenter, shape: tuple[int, int], side: int | None) -> list[Tile]:
    """The tiles in which an image is read: one for a small image, unless `side` says otherwise.

    Raises UserError for a side below 1 and, with a network whose attention is global, for an image that is too large and for a
    side that would cut it.
    """
    if side is not None and side < 1:
        raise UserError(f"a tile of {side} pixels holds nothing: use 1 or more", "tile", side=side)
    pixels = shape[0] * shape[1]
    if network.margin is None:
        if pixels > MAX_GLOBAL:
            raise UserError(
                f"{shape[0]} x {shape[1]} pixels are too many for one pass, and a network with global attention takes no tiles: "
                "train one with a number in each of its radii, or cut the image",
                "tile.image_too_large",
            )
        if side is not None and side < max(shape):
            raise UserError(
                f"a tile of {side} pixels would cut what a network with global attention sees: leave it out",
                "tile.global_attention",
            )
        return split_into_tiles(shape, max(shape))
    if side is None:
        side = TILE if pixels > MAX_WHOLE else max(shape)
    return split_into_tiles(shape, side, network.margin)


def placements(side: int, size_divisor: int, min_size: int) -> list[tuple[int, int]]:
    """Pixels to add before and behind a side, so that `size_divisor` divides it and it is at least `min_size`: one placement
    for an even number, two for an odd one."""
    missing = -side % size_divisor if side > min_size else min_size - side
    half = missing // 2
    return [(half, half)] if missing % 2 == 0 else [(half, half + 1), (half + 1, half)]


def reflect(positions: Tensor, side: int) -> Tensor:
    """Positions on a line, mapped into 0 to `side` - 1 by reflection at both ends."""
    if side == 1:
        return torch.zeros_like(positions)
    around = positions % (2 * side - 2)
    return torch.minimum(around, 2 * side - 2 - around)


def tile_maps(
    network: Segmenter,
    image: WindowedImage,
    tile: Tile,
    limits: tuple[float, float],
    min_window: tuple[int, int] = (0, 0),
) -> Tensor:
    """The maps (out_chans, h, w) of a tile, the mean over all placements, in float32 or float64.

    Args:
        limits: values of the image that become 0 and 1.
        min_window: rows and columns that the network reads at least, where the image has so many.
    """
    windows = _windows(network, image.shape, tile, min_window)
    total: Tensor | None = None
    for rows, columns in windows:
        maps = network(_read(network, image, rows, columns, limits)[None])[0]
        inner_rows, inner_columns = tile.slices(rows.start, columns.start)
        maps = maps[..., inner_rows, inner_columns]
        maps = maps.float() if maps.itemsize < 4 else maps
        total = maps.clone() if total is None else total.add_(maps)
    assert total is not None
    return total.div_(len(windows))


def _windows(
    network: Segmenter, shape: tuple[int, int], tile: Tile, min_window: tuple[int, int] = (0, 0)
) -> list[tuple[range, range]]:
    """The rows and columns of the image that the outputs of `tile` need, for each placement."""
    ends = (tile.top, tile.bottom), (tile.left, tile.right)
    rows, columns = (
        [
            _window(start, stop, before, before + side + behind, network, shortest)
            for before, behind in placements(side, network.size_divisor, network.min_size)
        ]
        for (start, stop), side, shortest in zip(ends, shape, min_window, strict=True)
    )
    return list(product(rows, columns))


def _window(start: int, stop: int, before: int, side: int, network: Segmenter, shortest: int) -> range:
    """The positions that the outputs from `start` to `stop` need: of a length that is padded to `side` pixels, `before` of them
    in front. In the padded length, both ends are multiples of the stride."""
    stride, margin = network.size_divisor, network.margin
    if margin is None:
        return range(-before, side - before)
    first = max(0, start + before - margin) // stride * stride
    last = min(side, -(-(stop + before + margin) // stride) * stride)
    length = min(side, max(last - first, shortest, network.min_size))
    first = min(first, side - length) - before
    return range(first, first + length)


def _read(network: Segmenter, image: WindowedImage, rows: range, columns: range, limits: tuple[float, float]) -> Tensor:
    """The normalised pixels (C, rows, columns), by reflection beyond the image, with the device and dtype of the network."""
    inside = [
        reflect(torch.arange(part.start, part.stop), side).numpy()
        for part, side in zip((rows, columns), image.shape, strict=True)
    ]
    (top, bottom), (left, right) = ((int(part.min()), int(part.max()) + 1) for part in inside)
    pixels = image.window(top, left, bottom, right)[np.ix_(inside[0] - top, inside[1] - left)]
    weight = next(network.parameters())
    return torch.from_numpy(normalize(pixels, *limits)).to(weight.device, weight.dtype)


def predict_tiles(
    network: Segmenter,
    image: WindowedImage,
    limits: tuple[float, float],
    side: int | None,
    progress: Callable[[float], object],
) -> Iterator[tuple[Tile, Tile, Tensor]]:
    """Yields each tile, the same with one more pixel on each side, and the maps of the latter.

    `progress` is called with the fraction completed by each tile. All windows have one size: each takes the memory of the one
    before it, where other sizes would leave gaps.
    """
    parts = [(tile, tile.grown(1, image.shape)) for tile in choose_tiles(network, image.shape, side)]
    windows = [window for _, wider in parts for window in _windows(network, image.shape, wider)]
    largest = max(len(rows) for rows, _ in windows), max(len(columns) for _, columns in windows)
    for tile, wider in parts:
        yield tile, wider, tile_maps(network, image, wider, limits, largest)
        progress(1 / len(parts))
