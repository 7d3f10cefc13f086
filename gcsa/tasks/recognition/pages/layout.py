"""Lines on the image of a page, found by kraken (Kiessling 2020, doi:10.1007/978-3-030-57058-3_21), and what is read there written as PAGE-XML or ALTO.

kraken finds lines on upright pages. So a page is turned upright first: whether its lines stand or lie is seen from the
profiles of its ink, and of the two ways that are left the recogniser reads some lines in both. The lines of a scan that
is turned by a quarter are therefore cut from the very same pixels as those of the upright one, and read the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.reader import read_image
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.line_image import Line, cut, page_levels, read_line, turn_points
from gcsa.tasks.recognition.read_lines import lines_turn
from gcsa.tasks.recognition.reading import Reading

FORMATS = {"page": "pagexml", "alto": "alto"}
"""What pages are written as, and kraken's templates for it."""
VOTERS = 12
"""Lines, the longest, that are read to tell a page from one that stands on its head."""
PROFILE_SIDE = 1000
STRIPS = 8
LEAST_PRINT = 0.4
"""Of the share of dark pixels that is usual in the lines of a page: a line with less is print on the back that shines through, or a rule."""
RULE = 0.8


def has_kraken() -> bool:
    return find_spec("kraken") is not None


class PageFinder:
    """Finds the lines on images of pages, and remembers kraken's segmentation of each for `write`.

    orientation: "any", or "upright" where pages lie as they should.
    """

    def __init__(self, model: CTCRecognizer, orientation: str) -> None:
        self.model, self.orientation = model, orientation
        self.segmentations: dict[Path, Any] = {}

    def __call__(self, file: Path) -> list[Line]:
        """The lines of a page in kraken's reading order. Raises ValueError for one without lines or that cannot be read."""
        levels = page_levels(file)
        turn = 0
        if self.orientation == "upright":
            segmentation, lines = self._found(file, levels, turn)
        else:
            turn = 90 if lines_stand(levels) else 0
            segmentation, lines = self._found(file, levels, turn)
            if wrong := self._vote(lines):
                turn = (turn + wrong) % 360
                segmentation, lines = self._found(file, levels, turn)
        self.segmentations[file] = _turned(segmentation, turn, np.rot90(levels, -turn // 90).shape)
        return lines

    def _found(self, file: Path, levels: Array, turn: int) -> tuple[Any, list[Line]]:
        """The segmentation of the page turned back by `turn`, and its lines on the page as it lies."""
        upright = np.rot90(levels, -turn // 90)
        image = np.rot90(np.asarray(read_image(file, 3, upright=False)), -turn // 90)
        segmentation = printed(segment(Image.fromarray(np.ascontiguousarray(image))), upright)
        if not segmentation.lines:
            raise UserError(f"no lines of text were found on {file}: is it a page?")
        polygons = [turn_points(line.boundary, turn, upright.shape) for line in segmentation.lines]
        return segmentation, [Line(file, document=file.stem, polygon=polygon, turn=turn) for polygon in polygons]

    def _vote(self, lines: Sequence[Line]) -> int:
        longest = sorted(lines, key=lambda line: -_length(line))[:VOTERS]
        return lines_turn(self.model, [partial(read_line, line, self.model.height) for line in longest])


def segment(page: Image.Image) -> Any:
    """kraken's segmentation of an upright page by the model that comes with it, lines as baselines and polygons."""
    logging.getLogger("coremltools").setLevel(logging.ERROR)  # it warns of every PyTorch that it does not know
    from kraken.configs import SegmentationInferenceConfig
    from kraken.tasks import SegmentationTaskModel

    config = SegmentationInferenceConfig(accelerator="cpu", device=1, num_threads=torch.get_num_threads())
    found = SegmentationTaskModel.load_model().predict(page, config)
    return replace(found, lines=[line for line in found.lines if line.boundary and len(line.boundary) > 2])


def lines_stand(page: Array) -> bool:
    """Whether the lines of text on a page (H, W) stand on end: whether its ink comes and goes from column to column more
    than from row to row, in strips across, so that a picture or a margin in one of them does not decide."""
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
    """kraken's record of each line of `segmentation`: text, and place and confidence of each of its characters.

    A line that could not be read is empty. The characters' boxes meet half way between them.
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

    signs = reading.signs if reading is not None else ()
    length = sum(float(np.hypot(x1 - x0, y1 - y0)) for (x0, y0), (x1, y1) in pairwise(line.baseline))
    middles = [(a.end + b.start) / 2 for a, b in pairwise(signs)]
    starts = [signs[0].start, *middles] if signs else []
    ends = [*middles, signs[-1].end] if signs else []
    cuts = [
        (round(start * length), max(round(start * length) + 1, round(end * length)))
        for start, end in zip(starts, ends, strict=True)
    ]
    text = "".join(sign.character for sign in signs)
    return BaselineOCRRecord(text, cuts, [sign.confidence for sign in signs], line)


def printed(segmentation: Any, page: Array) -> Any:
    """A segmentation of `page` (H, W) without lines that are no print on it: what shines through from the back, and rules."""
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


def _length(line: Line) -> float:
    assert line.polygon is not None
    return max(max(side) - min(side) for side in zip(*line.polygon, strict=True))


def _turned(segmentation: Any, turn: int, shape: tuple[int, ...]) -> Any:
    """A segmentation of the upright page of `shape` on the page as it was scanned, turned by `turn` degrees."""

    def moved(points: Sequence[tuple[float, float]] | None) -> list[tuple[int, int]] | None:
        return None if points is None else [(int(x), int(y)) for x, y in turn_points(points, turn, shape)]

    lines = [replace(line, baseline=moved(line.baseline), boundary=moved(line.boundary)) for line in segmentation.lines]
    regions = {
        kind: [replace(region, boundary=moved(region.boundary)) for region in regions]
        for kind, regions in segmentation.regions.items()
    }
    return replace(segmentation, lines=lines, regions=regions)
