"""Pictures of any size as levels that are read a window at a time: whole slides, pyramids, large TIFF files, and all others.

The files of scanners (Aperio, Hamamatsu, Leica, MIRAX, DICOM ...) are read by OpenSlide (extra `slides`), TIFF files by
`gcsa.images.tiff`, OME-Zarr (extra `zarr`) by `gcsa.images.ome_zarr`, and what is small enough is held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa._utils.errors import MissingExtraError
from gcsa.images.folders import SLIDES
from gcsa.images.intensity import percentile_values
from gcsa.images.ome_zarr import OmeZarr
from gcsa.images.pixels import Pixels, Refused, naming, to_picture
from gcsa.images.planes import Plane
from gcsa.images.reader import opened, read_picture
from gcsa.images.tiff import MPP_RANGE, Tiff
from gcsa.images.windows import ArrayImage, CroppedImage, StoredImage, WindowedImage, counts, resampled

DICOM = (".dcm", ".dicom")
"""Of slides of which each level is a file: OpenSlide finds the others beside the one that is named."""
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
            raise Refused(f"holds {self.stored} levels, not all of which are read here: leave out --level {level}")
        if level >= len(self.levels):
            levels = "one level" if len(self.levels) == 1 else f"{len(self.levels)} levels"
            raise Refused(f"holds {levels}, counted from 0: there is no --level {level}")
        height, width = self.shape
        if roi is not None and (roi.x + roi.width > width or roi.y + roi.height > height):
            raise Refused(f"is {width} pixels wide and {height} high: --roi {roi} reaches beyond it")

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


class OpenSlideImage:
    """A level of a slide, of 8 bits, in grey or colour; a `WindowedImage`. What the scanner left out is white. Where
    pixels of a smaller level do not begin at pixels of the first, OpenSlide interpolates between them."""

    def __init__(self, slide: Any, level: int, channels: int, path: Path) -> None:
        self.slide, self.level, self.channels, self.path = slide, level, channels, path
        width, height = slide.level_dimensions[level]
        self.shape = (height, width)

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        factor = self.slide.level_downsamples[self.level]
        with naming(self.path):
            region = self.slide.read_region(
                (round(left * factor), round(top * factor)), self.level, (right - left, bottom - top)
            )
            white = Image.new("RGBA", region.size, "white")
            colours = np.asarray(Image.alpha_composite(white, region).convert("RGB"))
            return to_picture(Pixels(colours, 255), self.channels)

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return percentile_values(counts(self, np.uint8), low, high)


@contextmanager
def open_slide(path: Path, channels: int, in_memory: int = IN_MEMORY, plane: Plane | None = None) -> Iterator[Slide]:
    """Yields the picture in a file, or of a stack the `plane`, with its levels, of which none above `in_memory` pixels is held in memory.

    Raises:
        UserError: naming the file, as `read_picture`, `StoredImage` and OpenSlide refuse it.
        MissingExtraError: a file of a scanner without OpenSlide, OME-Zarr without zarr.
    """
    with ExitStack() as stack:
        with naming(path):
            slide = _scanned(path)
            first: WindowedImage | None = None
            smaller: list[WindowedImage] = []
            if slide is None:
                source = stack.enter_context(opened(path, max_bytes=None, plane=plane))
                mpp = magnification = pixel_size = None
                stored = 1
                if isinstance(source, Tiff | OmeZarr):
                    for level in source.smaller_levels:
                        with suppress(Refused):  # of a level that no window is read of: the others are enough
                            smaller.append(StoredImage(level, channels))
                    mpp, pixel_size, stored = source.mpp, source.pixel_size, source.level_count
                    if pixel_size is not None and source.orientation >= 5:
                        pixel_size = pixel_size[::-1]
                    if math.prod(source.shape) > in_memory:
                        first = StoredImage(source, channels)
            else:
                stack.callback(slide.close)
                if plane not in (None, Plane()):
                    raise Refused("is a slide, one picture in colour: leave out --channel, --z and --time")
                first = OpenSlideImage(slide, 0, channels, path)
                stored = slide.level_count
                smaller += (OpenSlideImage(slide, i, channels, path) for i in range(1, stored))
                height, mpp = (_number(slide.properties.get(f"openslide.mpp-{axis}"), *MPP_RANGE) for axis in "yx")
                pixel_size = None if height is None or mpp is None else (height, mpp)
                magnification = _number(slide.properties.get("openslide.objective-power"), 0.1, 1000)
        levels = first or ArrayImage(read_picture(path, channels, plane)), *smaller
        yield Slide(levels, mpp, magnification, pixel_size, stored)


@contextmanager
def open_window_source(
    path: Path, channels: int, in_memory: int = IN_MEMORY, plane: Plane | None = None
) -> Iterator[WindowedImage]:
    """Yields the picture in a file: the first level of `open_slide`, which says what it raises."""
    with open_slide(path, channels, in_memory, plane) as slide:
        yield slide.levels[0]


def has_levels(path: Path) -> bool:
    """Whether a file is of a scanner, or a pyramid. Raises UserError, naming it, for one that cannot be opened."""
    with naming(path):
        slide = _scanned(path)
        if slide is not None:
            slide.close()
            return True
        with opened(path, max_bytes=None) as source:
            return isinstance(source, Tiff | OmeZarr) and source.level_count > 1


def _scanned(path: Path) -> Any | None:
    """The open slide of OpenSlide, for a file of a scanner; None for any other. Raises as `open_slide`."""
    suffix = path.suffix.lower()
    of_scanner = suffix in (*SLIDES, *DICOM)
    if not path.is_file() or not (of_scanner or suffix in (".tif", ".tiff")):
        return None
    try:
        import openslide
    except (ImportError, OSError) as error:  # OSError: where its library is not found
        if not of_scanner:
            return None
        raise MissingExtraError(f"{path} needs OpenSlide: pip install gcsa-vit[slides]") from error
    if openslide.OpenSlide.detect_format(str(path)) in (None, "generic-tiff"):
        return None
    try:
        return openslide.OpenSlide(str(path))
    except openslide.OpenSlideError as error:
        raise Refused(f"cannot be read as a slide ({error}): replace it") from error


def _number(text: str | None, low: float, high: float) -> float | None:
    """A number from `low` to `high` in a property of a file, else None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if low <= value <= high else None
