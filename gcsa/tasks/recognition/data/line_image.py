"""Images of single text lines: read, contrast-normalised, and resized to a height and one of a few widths.

Ink is 1 and paper 0: ink = clip((paper - x) / (paper - black), 0, 1), where `paper` is the 95th and `black` the 1st
percentile of the grey values x of the line, or a lower one where a few letters stand on a wide line. Where the median
is nearer the 1st than the 99th percentile the line is light on dark, and x is inverted first. Widths form a geometric
series, so that lines of one width share a batch and no pixel is padding. Reading and resizing commute with rotations by
90 degrees.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.pixels import Pixels, naming, to_grey
from gcsa.images.reader import grey_pixels, open_image, read_grey
from gcsa.tasks.recognition.data.cutting import MAX_PIXELS, Points, cut, rotate_points

MAX_WIDTH = 8192
MIN_SIDE = 4
MIN_CONTRAST = 16
"""Of 255 grey values; in a picture of more than 8 bits, of its largest value, as it may use 10 or 12 of 16 bits."""
MIN_DEEP_CONTRAST = 0.2
"""Of 255 grey values, whatever the largest is: 51 of 65,535, above the noise of what is black all over."""
FEW_LETTERS = 0.02
"""Squares of a line's height that their ink covers: half a letter."""
DARK = 0.5
"""Ink of a letter, not of one that shines through."""
TAIL = 0.005
MARGIN = 0.1
LINE_ASPECT = 1.5
GROWTH = 1.03
"""Of the series of widths: a line is stretched by at most 1.5 %, or half a step where it is short."""


class Line(NamedTuple):
    """A line of text: a whole image file, or what lies within `polygon` (pixels x, y) on the image of a page.

    baseline: pixels x, y; tells how the line runs on the page.
    page: the number of that image, from 1 on, in a file of several.
    orientation: degrees, counter-clockwise, by which the page is known to be rotated; the line is cut from the upright page.
    error: why the line cannot be cut out, where the file that describes the page gives no usable polygon.
    """

    image: Path
    text: str = ""
    split: str = ""
    document: str = ""
    polygon: Points | None = None
    orientation: int = 0
    error: str = ""
    page: int | None = None
    baseline: Points | None = None

    @property
    def name(self) -> str:
        """For messages: the file, and where on it."""
        if self.polygon is None:
            return str(self.image)
        return f"{self.image}, line at {', '.join(f'{min(side):.0f}' for side in zip(*self.polygon, strict=True))}"


def read_line(source: Line | str | Path | Image.Image, height: int | None = None) -> Tensor:
    """The ink (1, h, w) of a line, float32 from 0 (paper) to 1, in the size of the image.

    Args:
        height: of the model; refuses lines that would be wider than MAX_WIDTH there, with the name of the file.

    Raises:
        ValueError: a line with an `error`; an image that cannot be read, is below 4 pixels a side, blank, far too large
            or far too wide.
    """
    if isinstance(source, Image.Image):
        return _ink_of(grey_pixels(source), None, "the image", height)
    line = source if isinstance(source, Line) else Line(Path(source))
    if line.error:
        raise UserError(line.error, "line.refused")
    if line.polygon is None:
        return _ink_of(read_grey(line.image, page=line.page), None, line.name, height)
    page = page_grey(line.image, line.page)
    polygon, baseline = (
        points and rotate_points(points, -line.orientation, page.shape) for points in (line.polygon, line.baseline)
    )
    assert polygon is not None
    return polygon_ink(np.rot90(page, -line.orientation // 90), polygon, line.name, height, baseline)


def polygon_ink(
    page: Array,
    polygon: Sequence[tuple[float, float]],
    name: str,
    height: int | None = None,
    baseline: Sequence[tuple[float, float]] | None = None,
) -> Tensor:
    """As `read_line`, of what lies within `polygon` along `baseline` on `page` (H, W); `name` is for messages."""
    return _ink_of(*cut(page, polygon, baseline), name, height)


def without_margins(ink: Tensor) -> Tensor:
    """A line (1, h, w) without the paper along its long sides, so that small type in a wide polygon fills the height.

    The line is what holds all but `TAIL` at either side of the dark ink, and a margin. An image of which no side is clearly
    longer comes back as it is. Commutes with rotations by 90 degrees.
    """
    h, w = ink.shape[1:]
    short = min(h, w)
    if max(h, w) < LINE_ASPECT * short:
        return ink
    rows = (ink[0] > DARK).double().sum(1 if h <= w else 0)
    total = float(rows.sum())
    first = int((rows.cumsum(0) <= TAIL * total).sum())
    last = short - int((rows.flip(0).cumsum(0) <= TAIL * total).sum())
    if last - first < MIN_SIDE:
        return ink
    margin = round(MARGIN * (last - first))
    first, last = max(0, first - margin), min(short, last + margin)
    return ink.narrow(1 if h <= w else 2, first, last - first)


def check_width(h: int, w: int, height: int, name: str = "the line") -> None:
    """Raise a ValueError where a line of h x w pixels is wider than MAX_WIDTH when it is scaled to `height`."""
    long, short = max(h, w), min(h, w)
    if long * height > MAX_WIDTH * short:
        raise UserError(
            f"{name} is {w} x {h} pixels, {round(long * height / short)} long at height {height}, above {MAX_WIDTH}: "
            f"cut it into pieces of at most {MAX_WIDTH * short // height}",
            "line.too_wide",
        )


@lru_cache
def widths_of(step: int) -> tuple[int, ...]:
    """The series of widths up to MAX_WIDTH: multiples of `step`, each at most 3 % or one step above the last."""
    widths = [step]
    while (longer := max(widths[-1] + step, int(widths[-1] * GROWTH) // step * step)) <= MAX_WIDTH:
        widths.append(longer)
    return tuple(widths)


def nearest_width(width: float, step: int) -> int:
    """The member of `widths_of(step)` nearest to `width`."""
    widths = widths_of(step)
    above = bisect_left(widths, width)
    return min(widths[max(0, above - 1) : above + 1], key=lambda member: abs(member - width))


def fit_line(line: Tensor, height: int, step: int = 8, upright: bool = False) -> Tensor:
    """Resizes a line (1, h, w) so that its short side is `height` and its long side `nearest_width`.

    With `upright` the vertical side is `height` also where a line is higher than long. Without it, fitting commutes with
    rotations by 90 degrees.

    Raises:
        ValueError: a height that is not a multiple of `step`, or a line longer than MAX_WIDTH at that height.
    """
    if height < step or height % step:
        raise UserError(f"height={height} must be a multiple of step={step}", "height.step", height=height)
    h, w = line.shape[-2:]
    check_width(h, w, height)
    if h == w:
        size = (height, height)
    elif upright or h < w:
        size = (height, nearest_width(w * height / h, step))
    else:
        size = (nearest_width(h * height / w, step), height)
    if size == (h, w):
        return line
    # In float64, because in float32 the two sides of the antialiasing kernel differ by 2e-5.
    resized = F.interpolate(line[None].double(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return resized[0].to(line.dtype)


def fit_bytes(line: Tensor, height: int, step: int, upright: bool) -> Tensor:
    """As `fit_line`, in uint8 from 0 to 255: how lines are stored, trained on and read."""
    return fit_line(line, height, step, upright).mul(255).round_().to(torch.uint8)


def grey_ink(grey: Array, name: str, height: int | None = None) -> Tensor:
    """As `read_line`, of grey values (H, W); `name` is for messages."""
    return _ink_of(grey, None, name, height)


def page_pixels(path: Path, page: int | None = None) -> tuple[Pixels, int]:
    """The pixels of an image, as they are stored, and its EXIF orientation; `page` is of `open_image`. Those of the last image are kept.

    Raises ValueError as `read_grey`.
    """
    return _pixels_as_of(path, page, *_version(path))


def page_size(path: Path, page: int | None = None) -> tuple[int, int]:
    """Width and height of `page_pixels`: of a page that was just read, its file is not opened again."""
    height, width = page_pixels(path, page)[0].values.shape[:2]
    return width, height


def page_grey(path: Path, page: int | None = None) -> Array:
    """The grey values (H, W) of `page_pixels`."""
    return _grey_as_of(path, page, *_version(path))


def forget_page() -> None:
    """Lets go of the last image, so that it takes no memory while the next one is decoded."""
    _pixels_as_of.cache_clear()
    _grey_as_of.cache_clear()


def _version(path: Path) -> tuple[int, int]:
    with naming(path):
        status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=1)  # size, picture and grey values of a page are asked for one after the other
def _pixels_as_of(path: Path, page: int | None, modified: int, size: int) -> tuple[Pixels, int]:
    with open_image(path, page=page) as source, naming(path):
        return source.read(upright=False), source.orientation


@lru_cache(maxsize=1)  # the lines of a page come one after the other
def _grey_as_of(path: Path, page: int | None, modified: int, size: int) -> Array:
    with naming(path):
        return to_grey(_pixels_as_of(path, page, modified, size)[0])


def _ink_of(grey: Array, inside: Array | None, name: str, height: int | None = None) -> Tensor:
    h, w = grey.shape
    if min(h, w) < MIN_SIDE:
        raise UserError(
            f"{name} is {w} x {h} pixels: a line needs at least {MIN_SIDE} on either side", "line.too_small", w=w, h=h
        )
    if h * w > MAX_PIXELS:
        raise UserError(
            f"{name} is {w} x {h} pixels, above {MAX_PIXELS:,}: cut the lines from the page first", "line.too_large"
        )
    if height is not None:
        check_width(h, w, height, name)
    return torch.from_numpy(_ink(grey, inside, name))[None]


def _ink(grey: Array, inside: Array | None, name: str) -> Array:
    counted = grey if inside is None else grey[inside]
    if not counted.size:
        raise UserError(f"{name} lies outside of its image", "line.outside")
    needed = MIN_CONTRAST if grey.dtype == np.uint8 else max(MIN_DEEP_CONTRAST, MIN_CONTRAST * counted.max() / 255)
    grey, counted = grey.astype(np.float32), counted.astype(np.float32)
    tail = _tail(counted, min(grey.shape))
    low, median, high = np.percentile(counted, (tail, 50, 100 - tail))
    if median - low < high - median:
        grey, counted = 255 - grey, 255 - counted
    black, paper = np.percentile(counted, (tail, 95))
    if not paper - black >= needed:
        raise UserError(
            f"{name} is blank: its grey values differ by {paper - black:.3g} of 255, a line needs {needed:.3g}",
            "line.blank",
        )
    ink = np.clip((paper - grey) / (paper - black), 0, 1).astype(np.float32)
    return ink if inside is None else np.where(inside, ink, np.float32(0))


def _tail(counted: Array, short: int) -> float:
    """The percentile that is `black` of the grey values `counted` of a line `short` pixels high: 1, or less where so
    few letters stand on it that the 1st is paper."""
    few = min(1.0, 100 * FEW_LETTERS * short**2 / counted.size)
    darkest, low, median, high, lightest = np.percentile(counted, (few, 1, 50, 99, 100 - few))
    return few if max(median - darkest, lightest - median) > 2 * max(median - low, high - median) else 1.0
