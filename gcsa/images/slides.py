"""Pictures of any size as levels that are read a window at a time: whole slides, pyramids, large TIFF files, and all others.

What is small enough is held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gcsa._utils.arrays import Array
from gcsa.images.pixels import Refused, naming, to_picture
from gcsa.images.planes import Plane
from gcsa.images.reader import open_image
from gcsa.images.windows import ArrayImage, CroppedImage, StoredImage, WindowedImage, resampled

IN_MEMORY = 64_000_000
"""Pixels up to which a picture is held in memory as a whole."""


class Roi(NamedTuple):
    """A rectangle in pixels of the first level: column and row of its first pixel, and its sides."""

    x: int
    y: int
    width: int
    height: int

    def __str__(self) -> str:
        return ",".join(map(str, tuple(self)))


class Part(NamedTuple):
    """A part of a slide.

    seen: its pixels in one of the levels; image: those of the first level; origin: row and column in the first level of its first pixel.
    """

    seen: WindowedImage
    image: WindowedImage
    origin: tuple[int, int]


@dataclass(frozen=True)
class Slide:
    """A picture of one or more levels.

    Attributes:
        levels: the same picture in ever fewer pixels, the first in all.
        mpp: micrometres a pixel of the first level; None where the file does not say it.
        magnification: of the objective; None where the file does not say it.
        pixel_size: height and width of a pixel of the first level in micrometres, for tables; None where the file does not state them.
        stored: levels in the file; `levels` are fewer where some are stored in a way that is not read.
    """

    levels: tuple[WindowedImage, ...]
    mpp: float | None = None
    magnification: float | None = None
    pixel_size: tuple[float, float] | None = None
    stored: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the first level."""
        return self.levels[0].shape

    def downsample(self, level: int) -> float:
        """How many pixels of the first level lie along one of `level`."""
        pairs = zip(self.shape, self.levels[level].shape, strict=True)
        return math.prod(whole / part for whole, part in pairs) ** 0.5

    def level_for(self, factor: float) -> int:
        """The coarsest level of which no pixel is larger than `factor` pixels of the first level, up to a hundredth."""
        return max(level for level in range(len(self.levels)) if level == 0 or self.downsample(level) <= 1.01 * factor)

    def direct_level(self, extent: int, size: int) -> int | None:
        """The level in which `extent` pixels of the first level are `size` pixels, so that nothing is resampled; None without one."""
        level = self.level_for(extent / size)
        return level if round(extent / self.downsample(level)) == size else None

    def check(self, level: int, roi: Roi | None) -> None:
        """Raises Refused for a level that is not there or whose number is not sure, and for a rectangle that reaches beyond the slide."""
        if level > 0 and len(self.levels) < self.stored:
            raise Refused(
                f"holds {self.stored} levels, not all of which are read here: leave out --level {level}",
                "level.pyramid",
            )
        if level >= len(self.levels):
            levels = "one level" if len(self.levels) == 1 else f"{len(self.levels)} levels"
            raise Refused(f"holds {levels}, counted from 0: there is no --level {level}", "level", levels=levels)
        height, width = self.shape
        if roi is not None and (roi.x + roi.width > width or roi.y + roi.height > height):
            raise Refused(f"is {width} pixels wide and {height} high: --roi {roi} reaches beyond it", "roi")

    def part(self, level: int, roi: Roi | None) -> Part:
        """The rectangle `roi`, or all, as `level` shows it, grown to whole pixels of the level. Raises Refused as `check`."""
        self.check(level, roi)
        height, width = self.shape
        x, y, across, down = roi or (0, 0, width, height)
        factors = [part / whole for part, whole in zip(self.levels[level].shape, self.shape, strict=True)]
        starts = [math.floor(start * factor) for start, factor in zip((y, x), factors, strict=True)]
        ends = [
            min(side, math.ceil(end * factor - 1e-9))
            for end, factor, side in zip((y + down, x + across), factors, self.levels[level].shape, strict=True)
        ]
        top, left = (round(start / factor) for start, factor in zip(starts, factors, strict=True))
        bottom, right = (round(end / factor) for end, factor in zip(ends, factors, strict=True))
        image = _cropped(self.levels[0], top, left, bottom, right)
        seen = image if level == 0 else _cropped(self.levels[level], *starts, *ends)
        return Part(seen, image, (top, left))

    def overview(self, level: int) -> WindowedImage:
        """The whole slide: the finest of `level` and the coarser ones that is small enough to be held in memory, or else the coarsest."""
        levels = self.levels[level:]
        return next((one for one in levels if math.prod(one.shape) <= IN_MEMORY), levels[-1])

    def patch(self, row: int, column: int, extent: int, size: int) -> Array:
        """The square of `extent` pixels of the first level from (row, column) on, as (size, size, C), for a slide of 8 bits: the pixels of
        the level that has them, or else resampled from the nearest finer level. Beyond the slide it is white."""
        level = self.level_for(extent / size)
        image, factor = self.levels[level], self.downsample(level)
        corner = row / factor, column / factor
        if self.direct_level(extent, size) is not None:
            # Half a pixel in front of the border is still of the last one.
            top, left = (min(round(start), side - 1) for start, side in zip(corner, image.shape, strict=True))
            pixels = image.window(top, left, min(top + size, image.shape[0]), min(left + size, image.shape[1]))
        else:
            step = extent / factor / size
            height, width = (
                max(1, min(size, round((side - start) / step))) for start, side in zip(corner, image.shape, strict=True)
            )
            pixels = resampled(image, corner, (step, step), (height, width))
            pixels = np.floor(pixels + 0.5)  # halves, frequent in means of four, are rounded up as by OpenCV
        whole = np.full((size, size, pixels.shape[2]), 255, np.uint8)
        whole[: pixels.shape[0], : pixels.shape[1]] = pixels
        return whole


def _cropped(image: WindowedImage, top: int, left: int, bottom: int, right: int) -> WindowedImage:
    """A part of an image, held in memory where it is small enough."""
    if (top, left, bottom, right) == (0, 0, *image.shape):
        return image
    if (bottom - top) * (right - left) <= IN_MEMORY:
        return ArrayImage(image.window(top, left, bottom, right))
    return CroppedImage(image, top, left, bottom, right)


@contextmanager
def open_slide(path: Path, channels: int, in_memory: int = IN_MEMORY, plane: Plane | None = None) -> Iterator[Slide]:
    """Yields the picture in a file, or of a stack the `plane`, with its levels, of which none above `in_memory` pixels is held in memory.

    Raises:
        UserError: naming the file, as `read_picture`, `StoredImage` and OpenSlide refuse it.
        MissingExtraError: a file of a scanner without OpenSlide, OME-Zarr without zarr.
    """
    with open_image(path, plane=plane, scanner=True) as source:
        with naming(path):
            smaller: list[WindowedImage] = []
            for level in source.smaller_levels:
                with suppress(Refused):  # of a level that no window is read of: the others are enough
                    smaller.append(StoredImage(level, channels))
            by_window = source.is_slide or (source.part_size is not None and math.prod(source.shape) > in_memory)
            first = StoredImage(source, channels) if by_window else ArrayImage(to_picture(source.read(), channels))
        about = source.mpp, source.magnification, source.upright_pixel_size, source.levels_stored
        yield Slide((first, *smaller), *about)


@contextmanager
def open_window_source(
    path: Path, channels: int, in_memory: int = IN_MEMORY, plane: Plane | None = None
) -> Iterator[WindowedImage]:
    """Yields the picture in a file: the first level of `open_slide`, which says what it raises."""
    with open_slide(path, channels, in_memory, plane) as slide:
        yield slide.levels[0]
