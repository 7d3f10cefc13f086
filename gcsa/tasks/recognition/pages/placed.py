"""A page with the places of its lines and words, as formats want it that know neither polygons nor their rotation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gcsa.tasks.recognition.data.cutting import Points
from gcsa.tasks.recognition.data.line_image import page_size
from gcsa.tasks.recognition.pages.inputs import Source, Transcript, is_xml
from gcsa.tasks.recognition.pages.page_xml import read_regions
from gcsa.tasks.recognition.pages.words import Box, Word, box_of, clipped, upright_points, words_of
from gcsa.tasks.recognition.reading import Reading


@dataclass(frozen=True)
class PlacedLine:
    """A line that was read.

    Attributes:
        box: on the page as it was scanned.
        region: its name, or "".
        baseline: slope and height at x = 0 of the upright line (`upright_points`), y pointing down; None where it is not known.
    """

    reading: Reading
    box: Box
    words: list[Word]
    region: str = ""
    baseline: tuple[float, float] | None = None


@dataclass(frozen=True)
class PlacedPage:
    """The image of a page, number `page` in its file, its size (width, height), and its lines in reading order."""

    image: Path
    page: int | None
    size: tuple[int, int]
    lines: list[PlacedLine]


def placed_page(source: Source, transcripts: Sequence[Transcript], any_image: bool = False) -> PlacedPage:
    """The lines of a page that were read, in the order of `transcripts`.

    Raises ValueError where the image of an XML file is not there, or its lines are others than `transcripts`.
    """
    if is_xml(source.file):
        image, regions = read_regions(source.file, any_image)
    else:
        image, regions = source.file, [f"block_{transcript.input.block}" for transcript in transcripts]
    size = page_size(image, source.page)
    lines = [
        _placed(clipped(line.polygon, size), line.baseline, transcript.reading, region)
        for transcript, region in zip(transcripts, regions, strict=True)
        if transcript.reading is not None and (line := transcript.input.line) is not None and line.polygon
    ]
    return PlacedPage(image, source.page, size, lines)


def _placed(polygon: Points, baseline: Points | None, reading: Reading, region: str) -> PlacedLine:
    fitted = _fitted(upright_points(baseline or (), reading.orientation))
    return PlacedLine(reading, box_of(polygon), words_of(polygon, reading, baseline), region, fitted)


def _fitted(baseline: Points) -> tuple[float, float] | None:
    """Slope and height at x = 0 of the straight line nearest to a baseline."""
    xs, ys = np.array(baseline, dtype=float).reshape(-1, 2).T
    if len(xs) < 2 or np.ptp(xs) < max(1.0, np.ptp(ys)):
        return None
    slope, height = np.polyfit(xs, ys, 1)
    return float(slope), float(height)
