"""Lines on the image of a page, found by kraken (Kiessling 2020, doi:10.1007/978-3-030-57058-3_21), and their text as PAGE-XML or ALTO.

kraken finds lines on upright pages, so a page is made upright first, as `find_orientation` sees it. The recogniser then reads some
lines as they are and upside down, and the more confident one counts. Where its confidence is below `LOW_CONFIDENCE`, the lines are searched at a
right angle to these too, and the more confident way counts. At last the lines of a skewed page are searched again without its skew.
The lines of a scan that is rotated by a multiple of 90 degrees are therefore cut from the same pixels as those of the upright scan,
and read the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, one_line
from gcsa.images.pixels import naming, to_8_bits
from gcsa.tasks.recognition.data.cutting import Points, cut, rotate_points
from gcsa.tasks.recognition.data.line_image import MIN_CONTRAST, Line, page_grey, page_pixels, page_size, polygon_ink
from gcsa.tasks.recognition.pages.inputs import Source
from gcsa.tasks.recognition.pages.orientation import find_orientation
from gcsa.tasks.recognition.pages.provenance import sign
from gcsa.tasks.recognition.reading import LOW_CONFIDENCE, PageVote, Reading, cuts_of

FORMATS = {"page": "pagexml", "alto": "alto"}
"""What pages are written as, and kraken's templates for it."""
VOTERS = 12
"""Lines, the longest, that are read to tell a page from one upside down."""
LEAST_PRINT = 0.4
"""A line with less than this share of the dark pixels that are usual on the page is print of the back, or a rule."""
FAINT = 0.7
"""Where the ink of most lines is lighter than this share of their paper, a page is blank: print that shines through had 0.85, print
and a hand 0.08 to 0.2."""
RULE = 0.8
MIN_SKEW, MAX_SKEW = 1.0, 20.0
"""Degrees: a page that is skewed by more and by less is made straight before its lines are searched."""
PAPER_STEP = 8
REDUCED = 1500
"""Pixels of the longer side of a page whose ink tells its skew."""
LEAST_REACH, STEPS = 2.0, (0.25, 0.05)
"""Degrees beyond twice the rough skew up to which the skew is sought, also on the other side; and the steps, the second around the best
of the first."""

Ink = Callable[[], Tensor]
Vote = Callable[[Sequence[Ink]], PageVote]
"""`RecognitionPredictor.page_orientation`."""


def has_kraken() -> bool:
    return find_spec("kraken") is not None


@dataclass(frozen=True)
class Layout:
    """kraken's segmentation of a page that is rotated by `orientation` degrees, once it was made upright, with its `grey` values (H, W)."""

    segmentation: Any
    orientation: int
    grey: Array

    def inks(self, name: str, height: int | None = None) -> list[Ink]:
        """What gives the ink of each line; see `polygon_ink`."""
        return [
            partial(polygon_ink, self.grey, line.boundary, name, height, line.baseline)
            for line in self.segmentation.lines
        ]

    def polygons(self) -> list[tuple[Points, Points]]:
        """Polygon and base line of each line on the page as it was scanned."""
        rotated = partial(rotate_points, degrees=self.orientation, shape=self.grey.shape)
        return [(rotated(line.boundary), rotated(line.baseline)) for line in self.segmentation.lines]

    def as_scanned(self) -> Any:
        """The segmentation of the page as it was scanned."""
        return _moved(self.segmentation, partial(rotate_points, degrees=self.orientation, shape=self.grey.shape))


def _moved(segmentation: Any, move: Callable[[Sequence[tuple[float, float]]], Points]) -> Any:
    """A segmentation whose points lie where `move` puts them, rounded to pixels."""

    def moved(points: Sequence[tuple[float, float]] | None) -> list[tuple[int, int]] | None:
        return None if points is None else [(round(x), round(y)) for x, y in move(points)]

    lines = [replace(line, baseline=moved(line.baseline), boundary=moved(line.boundary)) for line in segmentation.lines]
    regions = {
        kind: [replace(region, boundary=moved(region.boundary)) for region in regions]
        for kind, regions in segmentation.regions.items()
    }
    return replace(segmentation, lines=lines, regions=regions)


def find_layout(grey: Array, image: Array, name: str, vote: Vote | None) -> Layout:
    """The lines of a page with the `grey` values (H, W) and colours `image` (H, W, 3), which `name` stands for in messages.

    vote: tells the orientation of a page; without it, the page is upright.

    Raises ValueError where kraken fails.
    """

    @cache
    def found(orientation: int) -> tuple[Layout, PageVote]:
        upright, colours = (np.rot90(pixels, -orientation // 90) for pixels in (grey, image))
        with _naming(name):
            segmentation = segment(Image.fromarray(np.ascontiguousarray(colours)))
        layout = Layout(printed(segmentation, upright), orientation, upright)
        inks, boundaries = layout.inks(name), [line.boundary for line in layout.segmentation.lines]
        longest = sorted(range(len(inks)), key=lambda i: -_length(boundaries[i]))[:VOTERS]
        return layout, PageVote(0, 1.0) if vote is None else vote([inks[i] for i in longest])

    def upright_or_upside_down(orientation: int) -> tuple[Layout, PageVote]:
        layout, voted = found(orientation)
        return found((layout.orientation + voted.degrees) % 360) if voted.degrees else (layout, voted)

    def straightened(layout: Layout) -> Layout:
        upright, colours = (np.rot90(pixels, -layout.orientation // 90) for pixels in (grey, image))
        with _naming(name):
            segmentation = segment_skewed(colours, layout.segmentation)
        found = None if segmentation is None else printed(segmentation, upright)
        return layout if found is None or not found.lines else replace(layout, segmentation=found)

    if vote is None:
        return straightened(found(0)[0])
    orientation = find_orientation(grey).degrees
    layout, voted = upright_or_upside_down(orientation)
    if voted.confidence < LOW_CONFIDENCE:
        other, other_voted = upright_or_upside_down((orientation + 90) % 360)
        if other_voted.confidence > voted.confidence:
            return straightened(other)
    return straightened(layout)


class PageFinder:
    """Finds the lines on images of pages, and remembers the segmentation of the last one for `write`; vote: of `find_layout`."""

    def __init__(self, vote: Vote | None) -> None:
        self.vote = vote
        self.segmentation: Any = None

    def __call__(self, source: Source) -> list[Line]:
        """The lines of a page in kraken's reading order, none of a blank one. Raises ValueError for one that cannot be read."""
        file, page = source.file, source.page
        with naming(file):
            image = np.asarray(to_8_bits(page_pixels(file, page)[0], 3))
        layout = find_layout(page_grey(file, page), image, source.name, self.vote)
        self.segmentation = layout.as_scanned()
        line = partial(Line, file, document=file.stem, orientation=layout.orientation, page=page)
        return [line(polygon=polygon, baseline=baseline) for polygon, baseline in layout.polygons()]


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Whatever kraken stumbles over on a page as a UserError, so that the other pages are read."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise UserError(
            f"kraken cannot work on {name} ({type(error).__name__}: {one_line(error)}): leave it out", "kraken.refused"
        ) from error


def segment(page: Image.Image) -> Any:
    """kraken's segmentation of an upright page by the model that comes with it, lines as baselines and polygons."""
    logging.getLogger("coremltools").setLevel(logging.ERROR)  # it warns of every PyTorch that it does not know
    from kraken.configs import SegmentationInferenceConfig
    from kraken.tasks import SegmentationTaskModel

    config = SegmentationInferenceConfig(accelerator="cpu", device=1, num_threads=torch.get_num_threads())
    with torch.autocast("cpu", enabled=False):  # which --precision sets for the recogniser
        found = SegmentationTaskModel.load_model().predict(page, config)
    return replace(found, lines=[line for line in found.lines if line.boundary and len(line.boundary) > 2])


def skew(segmentation: Any, page: Array) -> float:
    """By how many degrees counter-clockwise the lines of an upright page (H, W, 3) are rotated; 0 without any.

    The baselines say it roughly: their median, weighted by length. Those of a page with much skew are too flat, for kraken breaks its
    lines. So their ink then says it: where the rows of a page lie along its lines, they are darkest and lightest (Postl 1986, Detection
    of linear oblique structures and skew scan in digitized documents).
    """
    chords = np.array([np.subtract(line.baseline[-1], line.baseline[0]) for line in segmentation.lines]).reshape(-1, 2)
    if not len(chords):
        return 0.0
    degrees = np.degrees(np.arctan2(-chords[:, 1], chords[:, 0]))
    lengths = np.hypot(*chords.T)
    order = np.argsort(degrees)
    reached = lengths[order].cumsum() >= lengths.sum() / 2
    rough = float(degrees[order][reached][0])
    columns, rows, ink = _ink(segmentation, page)
    if not len(ink):
        return rough

    def contrast(angle: float) -> float:
        along = rows * np.cos(np.radians(angle)) + columns * np.sin(np.radians(angle))
        return float((np.diff(np.bincount((along - along.min()).round().astype(int), ink)) ** 2).sum())

    reach = LEAST_REACH + abs(rough)
    coarse = max(np.arange(rough - reach, rough + reach, STEPS[0]), key=contrast)
    return float(max(np.arange(coarse - STEPS[0], coarse + STEPS[0], STEPS[1]), key=contrast))


def _ink(segmentation: Any, page: Array) -> tuple[Array, Array, Array]:
    """Columns, rows and amounts of what is darker than the paper in the lines of a page (H, W, 3), reduced to about `REDUCED` pixels."""
    step = max(1, round(max(page.shape[:2]) / REDUCED))
    grey = page[: page.shape[0] // step * step, : page.shape[1] // step * step].mean(2)
    grey = grey.reshape(grey.shape[0] // step, step, -1, step).mean((1, 3))
    mask = Image.new("1", grey.shape[::-1])
    draw = ImageDraw.Draw(mask)
    for line in segmentation.lines:
        if len(line.boundary) > 2:
            draw.polygon([(x / step, y / step) for x, y in line.boundary], fill=1)
    inside = np.asarray(mask)
    if not inside.any():
        return np.zeros(0), np.zeros(0), np.zeros(0)
    ink = np.where(inside, np.median(grey[inside]) - grey, 0).clip(0)
    rows, columns = ink.nonzero()
    return columns, rows, ink[rows, columns]


def segment_skewed(page: Array, found: Any) -> Any | None:
    """The lines of a page (H, W, 3) that are skewed by `MIN_SKEW` or more in the segmentation `found`, searched again on the page
    without its skew; None for any other page. Points are those on `page`."""
    degrees = skew(found, page)
    if not MIN_SKEW <= abs(degrees) <= MAX_SKEW:
        return None
    picture = Image.fromarray(np.ascontiguousarray(page))
    paper = tuple(np.median(page[::PAPER_STEP, ::PAPER_STEP], (0, 1)).astype(int).tolist())
    straight = picture.rotate(-degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)
    radians = np.radians(degrees)
    cos, sin = np.cos(radians), np.sin(radians)
    rotation = np.array([[cos, sin], [-sin, cos]])  # counter-clockwise, as y grows downwards
    centre, limits = (np.array(straight.size) - 1) / 2, np.array(picture.size) - 1

    def on_page(points: Sequence[tuple[float, float]]) -> Points:
        rotated = (np.array(points) - centre) @ rotation.T + limits / 2
        return tuple(map(tuple, rotated.clip(0, limits).tolist()))

    return _moved(segment(straight), on_page)


def records(segmentation: Any, readings: Iterable[Reading | None]) -> list[Any]:
    """kraken's record of each line of `segmentation`: its text, and the position and confidence of each character.

    A line that could not be read is empty. The boxes of neighbouring characters meet half way between them.
    """
    return [_record(line, reading) for line, reading in zip(segmentation.lines, readings, strict=True)]


def write(segmentation: Any, readings: Iterable[Reading | None], source: Source, kind: str, weights: str) -> str:
    """A page as PAGE-XML ("page") or ALTO ("alto"), as kraken writes it, which says that gcsa read it with `weights`."""
    from defusedxml.minidom import parseString
    from kraken.containers import ProcessingStep
    from kraken.serialization import serialize

    step = ProcessingStep("lines", "processing", "search of lines", {"model": "kraken's default"})
    size = page_size(source.file, source.page)
    with _naming(source.name):
        found = [record.logical_order() for record in records(segmentation, readings)]
        results = replace(segmentation, lines=found, imagename=source.file.name)
        content = serialize(results, image_size=size, template=FORMATS[kind], processing_steps=[step])
    document: Any = parseString(content.encode())
    for page in document.getElementsByTagName("Page"):
        if source.page is not None and page.hasAttribute("PHYSICAL_IMG_NR"):  # of ALTO
            page.setAttribute("PHYSICAL_IMG_NR", str(source.page))
    sign(document, weights)
    return str(document.toxml(encoding="UTF-8"), "utf-8")


def _record(line: Any, reading: Reading | None) -> Any:
    from kraken.containers import BaselineOCRRecord

    characters = reading.characters if reading is not None else ()
    length = sum(float(np.hypot(x1 - x0, y1 - y0)) for (x0, y0), (x1, y1) in pairwise(line.baseline))
    cuts = [
        (round(start * length), max(round(start * length) + 1, round(end * length)))
        for start, end in cuts_of(characters)
    ]
    text = "".join(character.character for character in characters)
    return BaselineOCRRecord(text, cuts, [character.confidence for character in characters], line)


def printed(segmentation: Any, page: Array) -> Any:
    """A segmentation of `page` (H, W) without lines that shine through from the back, and without rules.

    On a blank page, where most lines are grain of the paper or shine through, none is left.
    """
    cuts = [cut(page, line.boundary, line.baseline) for line in segmentation.lines]
    usual = np.median(
        [np.percentile(grey[inside], (1, 95)) for grey, inside in cuts if inside.any()] or [[0, 0]], axis=0
    )
    least_contrast = MIN_CONTRAST / 255 * page.max()  # a page of 16 bits may use few of them
    if not cuts or usual[0] > FAINT * usual[1] or usual[1] - usual[0] < least_contrast:
        return replace(segmentation, lines=[], line_orders=[])
    print_shares = [_print_share(grey < usual.mean(), inside) for grey, inside in cuts]
    least = LEAST_PRINT * np.median(print_shares)
    kept = [line for line, share in zip(segmentation.lines, print_shares, strict=True) if share >= least]
    return replace(segmentation, lines=kept, line_orders=[])


def _print_share(dark: Array, inside: Array) -> float:
    """The share of the pixels `inside` a polygon (h, w) that are dark, without rows that are dark from end to end."""
    dark = dark & inside
    rules = dark.sum(1) > RULE * inside.sum(1)
    return float(dark[~rules].sum() / max(1, inside.sum()))


def _length(boundary: Sequence[tuple[float, float]]) -> float:
    return max(max(side) - min(side) for side in zip(*boundary, strict=True))
