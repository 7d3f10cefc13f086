"""Pictures that are read a window at a time: from memory, or from a file that need not fit into it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from gcsa._utils.arrays import Array
from gcsa.images.intensity import percentile_values, percentiles
from gcsa.images.pixels import Refused, naming, to_picture
from gcsa.images.source import MAX_SEGMENT, ImageSource

ROWS = 512
"""Rows of a label map that are drawn at a time."""
COLUMNS = 2048
"""Columns of a picture that `contrast` reads at a time."""
SQUARE = 5
"""Side in pixels of the squares whose means `contrast` compares: about the least nucleus, and of noise a fifth of the spread."""
FINE = 2**20
"""Steps from the least to the largest value of a picture of floats, whose `contrast` is then exact in every pose."""
COUNTED = 4_000_000
"""Values that are counted at a time, for which NumPy takes 8 bytes each."""


class Windowed(Protocol):
    """An array (H, W, ...) of which any window can be read; `shape` is height and width."""

    shape: tuple[int, int]

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        """The values (bottom - top, right - left, ...) of rows `top` to `bottom` and columns `left` to `right`."""


class WindowedImage(Windowed, Protocol):
    """A picture (H, W, C) in uint8, uint16 or float32."""

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        """As `gcsa.images.intensity.percentiles` of the whole."""


class ArrayImage:
    """A picture (H, W, C) that is there."""

    def __init__(self, picture: Array) -> None:
        self.picture = picture
        self.shape = (picture.shape[0], picture.shape[1])

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        return self.picture[top:bottom, left:right]

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        if self.picture.dtype not in (np.uint8, np.uint16):
            return percentiles(self.picture, low, high)
        return percentile_values(counts(self, self.picture.dtype), low, high)


class CroppedImage:
    """The rows `top` to `bottom` and columns `left` to `right` of an image of whole numbers that is not held in memory."""

    def __init__(self, image: WindowedImage, top: int, left: int, bottom: int, right: int) -> None:
        self.image, self.top, self.left, self.shape = image, top, left, (bottom - top, right - left)

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        return self.image.window(self.top + top, self.left + left, self.top + bottom, self.left + right)

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return percentile_values(counts(self, self.window(0, 0, 1, 1).dtype), low, high)


class ScaledImage:
    """An image magnified by about `factor`, to whole sides: interpolated linearly, and smoothed where it shrinks (a triangle filter, as
    Pillow's). It is resampled a window at a time, in float32."""

    def __init__(self, image: WindowedImage, factor: float) -> None:
        self.image = image
        height, width = (max(1, round(side * factor)) for side in image.shape)
        self.shape = (height, width)

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        rows, columns = (old / new for old, new in zip(self.image.shape, self.shape, strict=True))
        return resampled(
            self.image, (top * rows, left * columns), (rows, columns), (bottom - top, right - left), triangles
        )

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return self.image.percentiles(low, high)


Taps = Callable[[float, float, int, int], tuple[int, int, Array]]
"""Gives the first and last + 1 of the pixels of a side of so many (fourth argument) that a row of new ones is made of, and their weights
(new, last - first). The new pixels begin at the first argument; they are as long as the second, and as many as the third."""


def triangles(low: float, step: float, count: int, side: int) -> tuple[int, int, Array]:
    """`Taps` that interpolate linearly, and smooth over two new pixels where these are longer."""
    centres = low + (np.arange(count) + 0.5) * step - 0.5
    reach = max(1.0, step)
    first, last = max(0, math.floor(centres[0] - reach)), min(side, math.ceil(centres[-1] + reach) + 1)
    weights = np.maximum(0, 1 - abs(np.arange(first, last) - centres[:, None]) / reach)
    return first, last, weights / weights.sum(1, keepdims=True)


def areas(low: float, step: float, count: int, side: int) -> tuple[int, int, Array]:
    """`Taps` that take the mean over the area of each new pixel, as the levels of slides are made; `triangles` where it is smaller."""
    if step < 1:
        return triangles(low, step, count, side)
    ends = low + np.arange(count + 1)[:, None] * step
    first, last = max(0, math.floor(low)), min(side, math.ceil(ends[-1, 0]))
    pixels = np.arange(first, last)
    weights = np.maximum(0, np.minimum(ends[1:], pixels + 1) - np.maximum(ends[:-1], pixels))
    return first, last, weights / weights.sum(1, keepdims=True)


def resampled(
    image: WindowedImage,
    corner: tuple[float, float],
    steps: tuple[float, float],
    shape: tuple[int, int],
    taps: Taps = areas,
) -> Array:
    """The pixels (H, W, C) of `shape`, in float32, each `steps` rows and columns of `image` large, from `corner` on, its upper left
    end."""
    (first, last, rows), (start, end, columns) = (
        taps(low, step, count, side) for low, step, count, side in zip(corner, steps, shape, image.shape, strict=True)
    )
    pixels = image.window(first, start, last, end).astype(np.float64)
    higher = csr_array(rows) @ pixels.reshape(len(pixels), -1)  # nearly all weights are 0
    turned = higher.reshape(len(rows), end - start, -1).swapaxes(0, 1)
    both = csr_array(columns) @ turned.reshape(end - start, -1)
    return both.reshape(len(columns), len(rows), -1).swapaxes(0, 1).astype(np.float32)


class StoredImage:
    """An image of up to 16 bits that is stored in parts, of which a window reads only its own pixels where they are not compressed, and
    else decodes only the tiles, strips or chunks that it needs. Values are those of `gcsa.images.reader.read_picture`.

    Raises ValueError for what that refuses, for other kinds of numbers, an orientation, and large compressed tiles or strips.
    """

    def __init__(self, stored: ImageSource, channels: int) -> None:
        self.stored, self.channels, self.shape = stored, channels, stored.shape
        if stored.white is None:
            raise Refused(
                f"holds {stored.dtype} values, and is too large for more than 16 bits: convert it to 8 or 16 bits",
                "image.too_deep",
            )
        if stored.orientation != 1:
            raise Refused(
                f"is stored rotated or reflected (orientation {stored.orientation}): save it as it should be seen",
                "image.rotated",
            )
        rows, columns = stored.part_size or stored.shape
        self.rows = 1 if stored.rows_are_plain else rows
        if not stored.rows_are_plain and rows * columns > MAX_SEGMENT:
            raise Refused(
                f"is compressed in parts of {rows} x {columns} pixels, too large to be decoded one by one: save it in "
                "tiles, or without compression",
                "image.chunks",
            )

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        with naming(self.stored.name):
            return to_picture(self.stored.window(top, left, bottom, right), self.channels)

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        dtype = self.window(0, 0, 1, 1).dtype
        return percentile_values(counts(self, dtype, self.rows), low, high)


def counts(source: WindowedImage, dtype: Any, rows: int = 1) -> Array:
    """How often each of the numbers of an unsigned `dtype` occurs in a picture that is stored in parts of `rows`."""
    length = int(np.iinfo(dtype).max) + 1
    total = np.zeros(length, np.int64)
    for top, bottom in strips(source.shape[0], rows):
        values = source.window(top, 0, bottom, source.shape[1]).reshape(-1)
        for start in range(0, len(values), COUNTED):
            total += np.bincount(values[start : start + COUNTED], minlength=length)
    return total


def contrast(image: WindowedImage) -> float:
    """How far the means of squares of `SQUARE` pixels lie apart, at most, in deviations of the noise of a pixel; of the channel in which this
    is most.

    The noise is estimated by the mean difference of neighbours, as if values were normal: about 2 in a picture of noise, whatever its
    distribution, 35 and more in one of nuclei (docs/measured/nuclei.md). The same, bit for bit, in every pose; infinite for a picture that
    is too small to tell.
    """
    height, width = image.shape
    if min(height, width) <= SQUARE:
        return math.inf
    whole = image.window(0, 0, 1, 1).dtype.kind == "u"
    low, high = (0.0, 1.0) if whole else image.percentiles(0, 100)
    step = 1.0 if whole else (high - low) / FINE or 1.0
    lowest, highest, differences = [], [], 0
    for (top, bottom), (left, right) in product(strips(height, 1, ROWS), strips(width, 1, COLUMNS)):
        part = image.window(top, left, min(height, bottom + SQUARE - 1), min(width, right + SQUARE - 1))
        part = np.ascontiguousarray(np.moveaxis(part, 2, 0))  # colours that lie side by side take twice the time
        values = part.astype(np.int32) if whole else np.rint((part.astype(np.float64) - low) / step).astype(np.int32)
        rows, columns = bottom - top, right - left  # which begin a square or a difference here
        differences += np.abs(np.diff(values[:, : rows + 1, :columns], axis=1)).sum((1, 2), dtype=np.int64)
        differences += np.abs(np.diff(values[:, :rows, : columns + 1], axis=2)).sum((1, 2), dtype=np.int64)
        if min(values.shape[1:]) >= SQUARE:
            sums = _windowed_sums(_windowed_sums(values, 1), 2)
            lowest.append(sums.min((1, 2)))
            highest.append(sums.max((1, 2)))
    noise = differences / ((height - 1) * width + height * (width - 1)) * (math.sqrt(math.pi) / 2)
    apart = (np.max(highest, 0) - np.min(lowest, 0)) / SQUARE**2
    return float(np.max(np.divide(apart, noise, out=np.zeros(len(apart)), where=noise > 0)))


def _windowed_sums(values: Array, axis: int) -> Array:
    """Of each `SQUARE` successive rows or columns."""
    count = values.shape[axis] - SQUARE + 1
    parts = [values[(slice(None),) * axis + (slice(start, start + count),)] for start in range(SQUARE)]
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total


def row_windows(image: Windowed) -> Iterator[tuple[int, Array]]:
    """The first row and the values of each part of about `ROWS` rows, over the whole width."""
    for top, bottom in strips(image.shape[0], 1, ROWS):
        yield top, image.window(top, 0, bottom, image.shape[1])


def strips(height: int, rows: int, least: int = 256) -> Iterator[tuple[int, int]]:
    """From and to of rows, in parts of a multiple of `rows` and of at least about `least`."""
    step = rows * max(1, least // rows)
    for top in range(0, height, step):
        yield top, min(height, top + step)
