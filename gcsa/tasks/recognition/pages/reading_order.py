"""The order in which the lines of a page are read, and the blocks that they form.

A page is divided from top to bottom by an upright gap that few lines cross, between columns, between text and marginalia, or at the
gutter of a double page. The lines that cross it, such as a title over two columns, divide the page into bands, and in each band one
side is read after the other: a column of notes, whose lines are short, after the text, other columns from left to right. The same is
done with each side, until no gap is left. A block is then read row by row. Lines at a right angle to the page come last, each a
block of its own.

All of it is told by positions, once the lines have been read and their orientation says how the page lies.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np

from gcsa._utils.arrays import Array
from gcsa.tasks.recognition.data.cutting import FoundLine, Points
from gcsa.tasks.recognition.pages.inputs import Transcript
from gcsa.tasks.recognition.pages.words import ANYWHERE
from gcsa.tasks.recognition.reading import Reading, mean_confidence, text_orientation

TOUCHING = 0.5
"""Of its height: a line that reaches less far over a gap does not cross it."""
LEAST_ASPECT = 1.5
"""A side of shorter lines is no column: numbers of verses, of pages in a table of contents."""
LEAST_BESIDE = 2
"""Lines that stand beside those of the other side: fewer are no column, but a number or a catchword."""
NOTES = 0.6
"""Of the usual length of the lines of the other side: that of notes in the margin is less."""
ACROSS_CONFIDENCE = 0.5
"""Of the confidence of the page: the least of a line at a right angle to it."""
SAME_ROW = 0.5
"""Of the height of the lower one: two lines that overlap by more stand in one row."""


class _Box(NamedTuple):
    number: int
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    def apart(self, other: _Box) -> bool:
        """Whether the one stands left of the other."""
        return max(self.left, other.left) + TOUCHING * min(self.height, other.height) > min(self.right, other.right)

    def beside(self, other: _Box) -> bool:
        """Whether they stand in one row."""
        shared = min(self.bottom, other.bottom) - max(self.top, other.top)
        return self.apart(other) and shared > SAME_ROW * min(self.height, other.height)


def arranged(transcripts: Sequence[Transcript]) -> list[Transcript]:
    """The lines that were found on the image of a page, in reading order and numbered by it, with their blocks, and with base lines
    that run in the direction of reading."""
    lines = [transcript.input.line for transcript in transcripts]
    places = [FoundLine(line.polygon or (), line.baseline or ()) for line in lines if line is not None]
    if len(places) < len(transcripts):  # the page could not be read
        return list(transcripts)
    readings = [transcript.reading for transcript in transcripts]
    found: list[Transcript] = []
    for block, members in enumerate(order_on_page(places, readings), 1):
        for i in members:
            line = lines[i]
            assert line is not None
            if (reading := readings[i]) is not None:
                line = line._replace(baseline=_along_text(places[i], reading.orientation))
            number = len(found) + 1
            found.append(
                replace(transcripts[i], input=replace(transcripts[i].input, line=line, number=number, block=block))
            )
    return found


def order_on_page(lines: Sequence[FoundLine], readings: Sequence[Reading | None]) -> list[list[int]]:
    """As `reading_order`, of the lines on a page as it was scanned; most of their text says how the page lies, and which way it runs.

    A line at a right angle that is read with much less confidence than the page is left out: the edge of a sheet, or the gutter.
    """
    read = [reading for reading in readings if reading is not None]
    degrees = text_orientation(read)
    text = "".join(reading.text for reading in read)
    leftward = sum(unicodedata.bidirectional(sign) in ("R", "AL") for sign in text) > len(text) / 2
    upright = [line.rotated(-degrees, ANYWHERE) for line in lines]
    usual = mean_confidence(
        (len(reading.text), reading.confidence) for reading in read if reading.orientation == degrees
    )
    kept = [
        number
        for number, (line, reading) in enumerate(zip(upright, readings, strict=True))
        if reading is None or not _is_across(line) or reading.confidence >= ACROSS_CONFIDENCE * usual
    ]
    return [[kept[i] for i in block] for block in reading_order([upright[number] for number in kept], leftward)]


def _is_across(line: FoundLine) -> bool:
    across, down = np.abs(np.subtract(line.baseline[-1], line.baseline[0]))
    return bool(down > across)


def _along_text(line: FoundLine, orientation: int) -> Points:
    """The base line in the direction of text that is rotated by `orientation` degrees: one that runs against it is that of the same
    line upside down, and is reflected in the centre of the line."""
    along = np.array([np.cos(np.radians(orientation)), -np.sin(np.radians(orientation))])
    if np.subtract(line.baseline[-1], line.baseline[0]) @ along >= 0:
        return line.baseline
    xs, ys = zip(*line.polygon, strict=True)
    x, y = min(xs) + max(xs), min(ys) + max(ys)
    return tuple((x - baseline_x, y - baseline_y) for baseline_x, baseline_y in line.baseline)


def reading_order(lines: Sequence[FoundLine], leftward: bool = False) -> list[list[int]]:
    """The numbers of the `lines` of an upright page, by block, in reading order; leftward: its script runs from right to left."""
    skew = _skew([line for line in lines if not _is_across(line)])
    boxes = [_box(number, line, skew, leftward) for number, line in enumerate(lines)]
    level = [box for box in boxes if not _is_across(lines[box.number])]
    across = sorted((box for box in boxes if _is_across(lines[box.number])), key=lambda box: (box.left, box.top))
    return [[box.number for box in block] for block in _blocks(level)] + [[box.number] for box in across]


def _skew(lines: Sequence[FoundLine]) -> float:
    """The angle, in radians, of the usual line, in which long ones count for more."""
    if not lines:
        return 0.0
    chords: Array = np.array([np.subtract(line.baseline[-1], line.baseline[0]) for line in lines], float)
    angles, lengths = np.arctan(chords[:, 1] / np.where(chords[:, 0] == 0, 1, chords[:, 0])), np.hypot(*chords.T)
    order = np.argsort(angles, kind="stable")
    return float(angles[order][np.searchsorted(lengths[order].cumsum(), lengths.sum() / 2)])


def _box(number: int, line: FoundLine, skew: float, leftward: bool) -> _Box:
    points = np.array(line.polygon, float)
    x = points @ [np.cos(skew), np.sin(skew)] * (-1 if leftward else 1)
    y = points @ [-np.sin(skew), np.cos(skew)]
    return _Box(number, x.min(), y.min(), x.max(), y.max())


def _blocks(boxes: list[_Box]) -> list[list[_Box]]:
    gap = _gap(boxes)
    if gap is None:
        return [_rows(boxes)] if boxes else []
    over = [box for box in boxes if _side(box, gap) == 0]
    crossing = sorted(
        (box for box in boxes if box in over or any(box.beside(other) for other in over)), key=lambda box: box.middle
    )
    if len(crossing) == len(boxes):
        return [_rows(boxes)]
    heights = [box.middle for box in crossing]
    found: list[list[_Box]] = []
    titles: list[_Box] = []  # crossing lines, with what stands in their rows, and nothing between them
    for place in range(len(crossing) + 1):
        band = [box for box in boxes if box not in crossing and bisect(heights, box.middle) == place]
        if band:
            found += _blocks(titles)
            titles = []
            sides = [[box for box in band if _side(box, gap) == side] for side in (-1, 1)]
            if all(sides) and _usual_width(sides[0]) < NOTES * _usual_width(sides[1]):
                sides.reverse()
            found += [block for side in sides for block in _blocks(side)]
        titles += crossing[place : place + 1]
    return found + _blocks(titles)


def _gap(boxes: list[_Box]) -> float | None:
    """The x of the upright gap with the most lines on its poorer side, less twice those that cross it; None where none is a gap."""
    best, gap = 0, None
    for x in sorted({box.left for box in boxes}):
        sides = {side: [box for box in boxes if _side(box, x) == side] for side in (-1, 0, 1)}
        fewer, more = sorted((sides[-1], sides[1]), key=len)
        gain = len(fewer) - 2 * len(sides[0])
        if gain > best and _is_column(fewer, more) and _is_column(more, fewer):
            best, gap = gain, x
    return gap


def _side(box: _Box, x: float) -> int:
    """-1 for a line left of `x`, 1 for one right of it, 0 for one that crosses it."""
    touching = TOUCHING * box.height
    if box.right - touching <= x:
        return -1
    return int(box.left + touching >= x)


def _is_column(boxes: list[_Box], others: list[_Box]) -> bool:
    """Whether lines are long enough for a column, and enough of them stand beside `others`."""
    if not boxes or median(box.width / box.height for box in boxes) < LEAST_ASPECT:
        return False
    return sum(any(box.beside(other) for other in others) for box in boxes) >= LEAST_BESIDE


def _usual_width(boxes: list[_Box]) -> float:
    return median(box.width for box in boxes)


def _rows(boxes: list[_Box]) -> list[_Box]:
    """From top to bottom; those that stand in one row from left to right."""
    rows: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda box: box.middle):
        if rows and any(map(box.beside, rows[-1])) and all(map(box.apart, rows[-1])):
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda box: box.left)]
