"""Lines on the image of a page.

A page is first made upright, as `find_orientation` sees it. The lines of a scan that is rotated by a multiple of 90 degrees are
therefore cut from the same pixels as those of the upright scan, and read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from gcsa._utils.arrays import Array
from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.images.pixels import Pixels, brightness, naming
from gcsa.tasks.recognition.data.cutting import FoundLine, cut
from gcsa.tasks.recognition.data.line_image import MIN_CONTRAST, Line, page_grey, page_pixels, polygon_ink
from gcsa.tasks.recognition.kraken.lines import check_kraken, lines_by_kraken
from gcsa.tasks.recognition.pages.detector import check_detector, detect_lines
from gcsa.tasks.recognition.pages.inputs import Source, is_page, is_xml
from gcsa.tasks.recognition.pages.orientation import find_orientation

INK = 0.35
"""Of the usual difference of paper and ink, by which a pixel is darker than the paper of its line: print in grey or in a colour is half as dark
as black, print that shines through from the back a sixth."""
LEAST_PRINT = 0.4
"""A line with less than this share of the dark pixels that are usual on the page is print of the back, or a rule."""
FAINT = 0.7
"""Where the ink of most lines is lighter than this share of their paper, a page is blank: print that shines through had 0.85, print
and a hand 0.08 to 0.2."""
RULE = 0.8
SLIVER, SLIVERS, BORDER = 0.1, 3, 2
"""At least so many lines that an edge of the page cuts, with ink in its outermost columns, are the edge of the facing page where they are shorter than
this share of the long lines. *Measured*: 0.03 to 0.07 on seven pages of two books."""

Ink = Callable[[], Tensor]
Finder = Callable[[Array], list[FoundLine]]
"""The lines on an upright page (H, W, 3) of 8 bits."""


def finder_of(name: str, sources: Iterable[Source] = ()) -> Finder:
    """The finder of this name, of `gcsa.tasks.recognition.choices.FINDERS`.

    Raises MissingExtraError where one of `sources` is the image of a page, and what the finder needs is not installed.
    """
    check, find = {"ppocr": (check_detector, detect_lines), "kraken": (check_kraken, lines_by_kraken)}[name]
    try:
        check()
    except MissingExtraError:
        if any(not is_xml(source.file) and is_page(source) for source in sources):
            raise
    return find


@dataclass(frozen=True)
class Layout:
    """The `lines` of a page that is rotated by `orientation` degrees, once it was made upright, with its `grey` values (H, W)."""

    lines: list[FoundLine]
    orientation: int
    grey: Array

    def inks(self, name: str, height: int | None = None) -> list[Ink]:
        """What gives the ink of each line; see `polygon_ink`."""
        return [partial(polygon_ink, self.grey, line.polygon, name, height, line.baseline) for line in self.lines]

    def as_scanned(self) -> list[FoundLine]:
        """The lines on the page as it was scanned."""
        return [line.rotated(self.orientation, self.grey.shape) for line in self.lines]


def find_layout(grey: Array, image: Array, name: str, upright: bool = False, find: Finder = detect_lines) -> Layout:
    """The lines of a page with the `grey` values (H, W) and colours `image` (H, W, 3), which `name` stands for in messages.

    upright: the page is known to be upright. Raises ValueError where the lines cannot be searched.
    """
    orientation = 0 if upright else find_orientation(grey).degrees
    level, colours = (np.rot90(pixels, -orientation // 90) for pixels in (grey, image))
    with _naming(name):
        found = find(np.ascontiguousarray(colours))
    kept = printed(found, level)
    return Layout([line for line, keep in zip(found, kept, strict=True) if keep], orientation, level)


def page_colours(pixels: Pixels) -> Array:
    """The colours (H, W, 3) of a page in 8 bits, without a copy where they are stored so. A page that uses less than half of what more bits
    hold, as 12 of 16 do, is brightened: its lines would not be found."""
    colours = brightness(pixels, np.uint8)
    if pixels.is_deep and colours.max() < 128:
        bright = brightness(pixels, np.float32)
        bright *= 255 / max(bright.max(), 1e-6)
        colours = bright.round().astype(np.uint8)
    return colours if colours.ndim == 3 else np.broadcast_to(colours[..., None], (*colours.shape, 3))


class PageFinder:
    """Finds the lines on images of pages; upright, find: of `find_layout`."""

    def __init__(self, upright: bool = False, find: Finder = detect_lines) -> None:
        self.upright, self.find = upright, find

    def __call__(self, source: Source) -> list[Line]:
        """The lines of a page, in no particular order, none of a blank one. Raises ValueError for one that cannot be read."""
        file, page = source.file, source.page
        with naming(file):
            image = page_colours(page_pixels(file, page)[0])
        layout = find_layout(page_grey(file, page), image, source.name, self.upright, self.find)
        line = partial(Line, file, document=file.stem, orientation=layout.orientation, page=page)
        return [line(polygon=found.polygon, baseline=found.baseline) for found in layout.as_scanned()]


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Whatever the search stumbles over on a page as a UserError, so that the other pages are read."""
    try:
        yield
    except (MemoryError, UserError):
        raise
    except Exception as error:
        raise UserError(
            f"the lines of {name} cannot be found ({type(error).__name__}: {one_line(error)}): leave it out",
            "lines.refused",
        ) from error


def printed(lines: Sequence[FoundLine], page: Array) -> list[bool]:
    """Which of the lines on `page` (H, W) are its print: others shine through from the back, are rules, or are the edge of the facing page.

    On a blank page, where most lines are grain of the paper or shine through, none is.
    """
    cuts = [cut(page, line.polygon, line.baseline) for line in lines]
    tones = [np.percentile(grey[inside], (1, 95)) if inside.any() else np.zeros(2) for grey, inside in cuts]
    ink, paper = np.median([tone for tone in tones if tone.any()] or [[0, 0]], axis=0)
    least_contrast = MIN_CONTRAST / 255 * page.max()  # a page of 16 bits may use few of them
    if not cuts or ink > FAINT * paper or paper - ink < least_contrast:
        return [False] * len(lines)
    shares = [
        _print_share(grey < own - INK * (paper - ink), inside)
        for (grey, inside), (_, own) in zip(cuts, tones, strict=True)
    ]
    least = LEAST_PRINT * float(np.median(shares))
    facing = _of_facing_page(lines, page, INK * (paper - ink))
    return [share >= least and number not in facing for number, share in enumerate(shares)]


def _of_facing_page(lines: Sequence[FoundLine], page: Array, contrast: float) -> set[int]:
    """Which of the lines on `page` (H, W) are what its left or right edge left of the lines of the facing page.

    contrast: of ink and paper, at least.
    """
    boxes = np.array([[np.min(line.polygon, 0), np.max(line.polygon, 0)] for line in lines])
    widths = boxes[:, 1, 0] - boxes[:, 0, 0]
    short = widths < SLIVER * np.quantile(widths, 0.8)
    facing: set[int] = set()
    for reaches, edge in (
        (boxes[:, 0, 0] <= 0, page[:, :BORDER]),
        (boxes[:, 1, 0] >= page.shape[1] - 1, page[:, -BORDER:]),
    ):
        pieces = np.flatnonzero(short & reaches).tolist()
        cut_through = sum(_is_cut(boxes[number, :, 1], edge, contrast) for number in pieces)
        # Where the edge cuts more lines that are long, it cuts this page, and short ones are the ends of its paragraphs.
        if cut_through >= max(SLIVERS, reaches.sum() / 2):
            facing |= set(pieces)
    return facing


def _is_cut(rows: Array, edge: Array, contrast: float) -> bool:
    """Whether there is ink between two `rows` of the outermost columns of a page, `edge` (H, BORDER)."""
    beside = edge[max(0, int(rows[0])) : int(rows[1]) + 1]
    if not beside.size:
        return False
    dark = beside < np.percentile(beside, 95) - contrast
    return bool(dark.any(0).all())


def _print_share(dark: Array, inside: Array) -> float:
    """The share of the pixels `inside` a polygon (h, w) that are dark, without rows that are dark from end to end."""
    dark = dark & inside
    rules = dark.sum(1) > RULE * inside.sum(1)
    return float(dark[~rules].sum() / max(1, inside.sum()))
