"""Words with their boxes and confidences, from the polygon of a line and the positions of its characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gcsa.tasks.recognition.data.charset import display_order
from gcsa.tasks.recognition.data.cutting import Points, rotate_points, strip_of
from gcsa.tasks.recognition.reading import Character, Reading, cuts_of

Box = tuple[int, int, int, int]
"""Left, top, right and bottom, in pixels of the page."""
ANYWHERE = (0, 0)
"""The shape of a page that points are rotated on, and back: any will do."""


class Word(NamedTuple):
    """A word in logical order, its mean confidence, and its box on the page as it was scanned."""

    text: str
    confidence: float
    box: Box


def words_of(polygon: Points, reading: Reading, baseline: Points | None = None) -> list[Word]:
    """The words of a line within `polygon`, in the order of its text; where it was straightened, along the same curve.

    All of it is one word where the positions of its characters are not known, and where the order of its words on the page and in the
    text, as of numbers among right-to-left words, cannot be told.
    """
    upright = upright_points(polygon, reading.orientation)
    groups = _groups(reading)
    if groups is None:
        box = _scanned(upright, reading.orientation)
        return [Word(reading.text, reading.confidence, box)] if reading.text else []
    words = []
    part = _parts(upright, None if baseline is None else upright_points(baseline, reading.orientation))
    for text, start, end, confidence in groups:
        words.append(Word(text, confidence, _scanned(part(start, end) or upright, reading.orientation)))
    return words


def upright_points(points: Points, orientation: int) -> Points:
    """`points` of a line that is rotated by `orientation` degrees, once it is upright; about the origin."""
    return rotate_points(points, -orientation, ANYWHERE)


def _scanned(points: Iterable[tuple[float, float]], orientation: int) -> Box:
    """The box of what `upright_points` rotated, back on the page."""
    return box_of(rotate_points(points, orientation, ANYWHERE))


def clipped(polygon: Points, size: tuple[int, int]) -> Points:
    """What of a polygon is on the page of this width and height, of which the line was cut."""
    return tuple(map(tuple, np.clip(polygon, 0, np.array(size) - 1).tolist()))


def box_of(points: Sequence[tuple[float, float]]) -> Box:
    xs, ys = zip(*points, strict=True)
    return math.floor(min(xs)), math.floor(min(ys)), math.ceil(max(xs)), math.ceil(max(ys))


def _parts(polygon: Points, baseline: Points | None) -> Callable[[float, float], Sequence[tuple[float, float]]]:
    """What gives the corners of the part of an upright line from one share of its length to another."""
    strip = strip_of(np.array(polygon, float), None if baseline is None else np.array(baseline, float))
    outline = polygon if strip is None else tuple(map(tuple, strip.outline.tolist()))
    left, right = min(x for x, _ in outline), max(x for x, _ in outline)

    def part(start: float, end: float) -> Sequence[tuple[float, float]]:
        corners = _between(outline, *(left + share * (right - left) for share in (start, end)))
        if strip is None or not corners:
            return corners
        return list(zip(*strip.on_page(*np.array(corners).T), strict=True))

    return part


def _between(polygon: Points, left: float, right: float) -> list[tuple[float, float]]:
    """The corners of what lies of `polygon` from `left` to `right`."""
    corners = [(x, y) for x, y in polygon if left <= x <= right]
    for (x0, y0), (x1, y1) in pairwise((*polygon, polygon[0])):
        for side in (left, right):
            if min(x0, x1) <= side <= max(x0, x1) and x0 != x1:
                corners.append((side, y0 + (y1 - y0) * (side - x0) / (x1 - x0)))
    return corners


def _groups(reading: Reading) -> list[tuple[str, float, float, float]] | None:
    """The words of a reading in the order of its text: text, shares of the line's length where it starts and ends, confidence."""
    cuts = cuts_of(reading.characters)
    found: list[list[tuple[Character, tuple[float, float]]]] = [[]]
    for character, cut in zip(reading.characters, cuts, strict=True):
        if character.character.isspace():
            found.append([])
        else:
            found[-1].append((character, cut))
    shown = [
        (
            display_order("".join(character.character for character, _ in word)),
            word[0][1][0],
            word[-1][1][1],
            sum(character.confidence for character, _ in word) / len(word),
        )
        for word in found
        if word
    ]
    texts = reading.text.split()
    for ordered in (shown, shown[::-1]):
        if [word[0] for word in ordered] == texts:
            return ordered
    return _by_text(shown, texts)


def _by_text(
    shown: Sequence[tuple[str, float, float, float]], texts: Sequence[str]
) -> list[tuple[str, float, float, float]] | None:
    """`shown` in the order of `texts`, where each is there once."""
    by_text = {word[0]: word for word in shown}
    if len(by_text) != len(shown) or sorted(by_text) != sorted(texts):
        return None
    return [by_text[text] for text in texts]
