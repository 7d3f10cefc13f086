"""Lines on the image of a page, found by kraken (Kiessling 2020, doi:10.1007/978-3-030-57058-3_21), and their text as PAGE-XML or ALTO.

kraken finds lines on upright pages, so a page is made upright first. The profiles of its ink tell whether its lines stand or lie; of
the two orientations that are left, the recogniser reads some lines in both and the more confident one counts. The lines of a scan
that is rotated by a multiple of 90 degrees are therefore cut from the same pixels as those of the upright scan, and read the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.reader import read_image
from gcsa.tasks.recognition.data.line_image import Line, Points, cut, page_levels, polygon_ink, rotate_points
from gcsa.tasks.recognition.reading import Reading

FORMATS = {"page": "pagexml", "alto": "alto"}
"""What pages are written as, and kraken's templates for it."""
VOTERS = 12
"""Lines, the longest, that are read to tell a page from one upside down."""
PROFILE_SIDE = 1000
STRIPS = 8
LEAST_PRINT = 0.4
"""A line with less than this share of the dark pixels that are usual on the page is print of the back, or a rule."""
RULE = 0.8

Ink = Callable[[], Tensor]
Vote = Callable[[Sequence[Ink]], int]
"""The degrees by which a page is rotated, as its lines say; `RecognitionPredictor.page_orientation`."""


def has_kraken() -> bool:
    return find_spec("kraken") is not None


@dataclass(frozen=True)
class Layout:
    """kraken's segmentation of a page that is rotated by `orientation` degrees, once it was made upright, with its `levels` (H, W)."""

    segmentation: Any
    orientation: int
    levels: Array

    def inks(self, name: str, height: int | None = None) -> list[Ink]:
        """What gives the ink of each line; see `polygon_ink`."""
        return [partial(polygon_ink, self.levels, line.boundary, name, height) for line in self.segmentation.lines]

    def polygons(self) -> list[Points]:
        """Where the lines are on the page as it was scanned."""
        return [rotate_points(line.boundary, self.orientation, self.levels.shape) for line in self.segmentation.lines]

    def as_scanned(self) -> Any:
        """The segmentation of the page as it was scanned."""

        def moved(points: Sequence[tuple[float, float]] | None) -> list[tuple[int, int]] | None:
            if points is None:
                return None
            return [(int(x), int(y)) for x, y in rotate_points(points, self.orientation, self.levels.shape)]

        found = self.segmentation
        lines = [replace(line, baseline=moved(line.baseline), boundary=moved(line.boundary)) for line in found.lines]
        regions = {
            kind: [replace(region, boundary=moved(region.boundary)) for region in regions]
            for kind, regions in found.regions.items()
        }
        return replace(found, lines=lines, regions=regions)


def find_layout(levels: Array, image: Array, name: str, vote: Vote | None) -> Layout:
    """The lines of a page with the grey `levels` (H, W) and colours `image` (H, W, 3), which `name` stands for in messages.

    vote: tells the orientation of a page; without it, the page is upright.

    Raises ValueError for a page without lines.
    """

    def found(orientation: int) -> Layout:
        upright, colours = (np.rot90(pixels, -orientation // 90) for pixels in (levels, image))
        segmentation = printed(segment(Image.fromarray(np.ascontiguousarray(colours))), upright)
        if not segmentation.lines:
            raise UserError(f"no lines of text were found on {name}: is it a page?")
        return Layout(segmentation, orientation, upright)

    if vote is None:
        return found(0)
    layout = found(90 if lines_stand(levels) else 0)
    boundaries = [line.boundary for line in layout.segmentation.lines]
    inks = layout.inks(name)
    longest = sorted(range(len(inks)), key=lambda i: -_length(boundaries[i]))[:VOTERS]
    wrong = vote([inks[i] for i in longest])
    return found((layout.orientation + wrong) % 360) if wrong else layout


class PageFinder:
    """Finds the lines on images of pages, and remembers the segmentation of each for `write`; vote: of `find_layout`."""

    def __init__(self, vote: Vote | None) -> None:
        self.vote = vote
        self.segmentations: dict[Path, Any] = {}

    def __call__(self, file: Path) -> list[Line]:
        """The lines of a page in kraken's reading order. Raises ValueError for one without lines or that cannot be read."""
        image = np.asarray(read_image(file, 3, upright=False))
        layout = find_layout(page_levels(file), image, str(file), self.vote)
        self.segmentations[file] = layout.as_scanned()
        polygons = layout.polygons()
        return [Line(file, document=file.stem, polygon=p, orientation=layout.orientation) for p in polygons]


def segment(page: Image.Image) -> Any:
    """kraken's segmentation of an upright page by the model that comes with it, lines as baselines and polygons."""
    logging.getLogger("coremltools").setLevel(logging.ERROR)  # it warns of every PyTorch that it does not know
    from kraken.configs import SegmentationInferenceConfig
    from kraken.tasks import SegmentationTaskModel

    config = SegmentationInferenceConfig(accelerator="cpu", device=1, num_threads=torch.get_num_threads())
    found = SegmentationTaskModel.load_model().predict(page, config)
    return replace(found, lines=[line for line in found.lines if line.boundary and len(line.boundary) > 2])


def lines_stand(page: Array) -> bool:
    """Whether the lines of text on a page (H, W) stand on end: its ink changes more from column to column than from row to row.

    The changes are summed over strips, so that a picture or a margin in one of them does not decide.
    """
    levels = torch.from_numpy(np.ascontiguousarray(page, dtype=np.float32))[None, None]
    levels = F.avg_pool2d(levels, max(1, min(page.shape) // PROFILE_SIDE))
    paper = F.avg_pool2d(levels, 31, 1, 15, count_include_pad=False)
    ink = (paper - levels).clamp(min=0)[0, 0]
    return _changes(ink.mT) > _changes(ink)


def _changes(ink: torch.Tensor) -> float:
    """How much the ink (H, W) of a row differs from that of the next, summed over strips of columns."""
    profiles = [strip.mean(1) for strip in ink.chunk(STRIPS, dim=1)]
    return sum(float(profile.diff().square().mean()) for profile in profiles)


def records(segmentation: Any, readings: Iterable[Reading | None]) -> list[Any]:
    """kraken's record of each line of `segmentation`: its text, and the position and confidence of each character.

    A line that could not be read is empty. The boxes of neighbouring characters meet half way between them.
    """
    return [_record(line, reading) for line, reading in zip(segmentation.lines, readings, strict=True)]


def write(segmentation: Any, readings: Iterable[Reading | None], file: Path, size: tuple[int, int], kind: str) -> str:
    """A page as PAGE-XML ("page") or ALTO ("alto"), as kraken writes it; `size` (width, height) of the image in `file`."""
    from kraken.serialization import serialize

    found = [record.logical_order() for record in records(segmentation, readings)]
    results = replace(segmentation, lines=found, imagename=file.name)
    return str(serialize(results, image_size=size, template=FORMATS[kind]))


def _record(line: Any, reading: Reading | None) -> Any:
    from kraken.containers import BaselineOCRRecord

    characters = reading.characters if reading is not None else ()
    length = sum(float(np.hypot(x1 - x0, y1 - y0)) for (x0, y0), (x1, y1) in pairwise(line.baseline))
    middles = [(a.end + b.start) / 2 for a, b in pairwise(characters)]
    starts = [characters[0].start, *middles] if characters else []
    ends = [*middles, characters[-1].end] if characters else []
    cuts = [
        (round(start * length), max(round(start * length) + 1, round(end * length)))
        for start, end in zip(starts, ends, strict=True)
    ]
    text = "".join(character.character for character in characters)
    return BaselineOCRRecord(text, cuts, [character.confidence for character in characters], line)


def printed(segmentation: Any, page: Array) -> Any:
    """A segmentation of `page` (H, W) without lines that shine through from the back, and without rules."""
    levels = [(levels, inside) for levels, inside in (cut(page, line.boundary) for line in segmentation.lines)]
    usual = np.median(
        [np.percentile(levels[inside], (1, 95)) for levels, inside in levels if inside.any()] or [[0, 0]], axis=0
    )
    print_shares = [_print_share(levels < usual.mean(), inside) for levels, inside in levels]
    least = LEAST_PRINT * np.median(print_shares) if print_shares else 0
    kept = [line for line, share in zip(segmentation.lines, print_shares, strict=True) if share >= least]
    return replace(segmentation, lines=kept, line_orders=[])


def _print_share(dark: Array, inside: Array) -> float:
    """The share of the pixels `inside` a polygon (h, w) that are dark, without rows that are dark from end to end."""
    dark = dark & inside
    rules = dark.sum(1) > RULE * inside.sum(1)
    return float(dark[~rules].sum() / max(1, inside.sum()))


def _length(boundary: Sequence[tuple[float, float]]) -> float:
    return max(max(side) - min(side) for side in zip(*boundary, strict=True))
