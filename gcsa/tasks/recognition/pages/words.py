"""Words with their boxes and confidences, from the polygon of a line and the positions of its characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


class Glyph(NamedTuple):
    """A character, its confidence, and its outline on the page as it was scanned."""

    text: str
    confidence: float
    outline: Points


class Word(NamedTuple):
    """A word in logical order, its mean confidence, and its box and outline on the page as it was scanned; its characters from the left
    end of the line to the right one, where `words_of` was asked for them and their positions are known."""

    text: str
    confidence: float
    box: Box
    outline: Points = ()
    glyphs: tuple[Glyph, ...] = ()


def words_of(
    polygon: Points, reading: Reading, baseline: Points | None = None, with_glyphs: bool = False
) -> list[Word]:
    """The words of a line within `polygon`, in the order of its text; where it was straightened, along the same curve.

    All of it is one word where the positions of its characters are not known, and where the order of its words on the page and in the
    text, as of numbers among right-to-left words, cannot be told.
    """
    upright = upright_points(polygon, reading.orientation)
    groups = _groups(reading)
    if groups is None:
        return [_word(reading.text, reading.confidence, polygon)] if reading.text else []
    part = _parts(upright, None if baseline is None else upright_points(baseline, reading.orientation))

    def outline(start: float, end: float) -> Points:
        return rotate_points(part(start, end) or upright, reading.orientation, ANYWHERE)

    return [
        _word(
            group.text,
            group.confidence,
            outline(group.cuts[0][0], group.cuts[-1][1]),
            tuple(
                Glyph(character.character, character.confidence, outline(*cut))
                for character, cut in zip(group.characters, group.cuts, strict=True)
                if with_glyphs
            ),
        )
        for group in groups
    ]


def _word(text: str, confidence: float, outline: Points, glyphs: tuple[Glyph, ...] = ()) -> Word:
    return Word(text, confidence, box_of(outline), outline, glyphs)


def upright_points(points: Points, orientation: int) -> Points:
    """`points` of a line that is rotated by `orientation` degrees, once it is upright; about the origin."""
    return rotate_points(points, -orientation, ANYWHERE)


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


def _between(polygon: Sequence[tuple[float, float]], left: float, right: float) -> list[tuple[float, float]]:
    """What lies of `polygon` from `left` to `right`."""
    for side, inwards in ((left, 1), (right, -1)):
        kept: list[tuple[float, float]] = []
        for (x0, y0), (x1, y1) in pairwise((*polygon, *polygon[:1])):
            if inwards * (x0 - side) >= 0:
                kept.append((x0, y0))
            if (x0 - side) * (x1 - side) < 0:
                kept.append((side, y0 + (y1 - y0) * (side - x0) / (x1 - x0)))
        polygon = kept
    return list(polygon)


class _Group(NamedTuple):
    """A word in logical order, its characters from left to right, and the shares of the line's length where each starts and ends."""

    text: str
    characters: list[Character]
    cuts: list[tuple[float, float]]

    @property
    def confidence(self) -> float:
        return sum(character.confidence for character in self.characters) / len(self.characters)


def _groups(reading: Reading) -> list[_Group] | None:
    """The words of a reading in the order of its text."""
    cuts = cuts_of(reading.characters)
    shown: list[_Group] = []
    is_space = True
    for character, cut in zip(reading.characters, cuts, strict=True):
        if not character.character.isspace():
            if is_space:
                shown.append(_Group("", [], []))
            shown[-1].characters.append(character)
            shown[-1].cuts.append(cut)
        is_space = character.character.isspace()
    shown = [
        group._replace(text=display_order("".join(character.character for character in group.characters)))
        for group in shown
    ]
    texts = reading.text.split()
    for ordered in (shown, shown[::-1]):
        if [group.text for group in ordered] == texts:
            return ordered
    by_text = {group.text: group for group in shown}
    if len(by_text) != len(shown) or sorted(by_text) != sorted(texts):
        return None
    return [by_text[text] for text in texts]
