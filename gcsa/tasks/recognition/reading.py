"""What a line says, and its feature map read in every orientation in which the line may have been scanned.

With H = c4 the features of a rotated line are the rotated features of the line, their group axis permuted:
F(g line) = g F(line). Hence g^-1 F holds the features of the upright line, and any decoder reads the same text from it. The set of
readings over all orientations does not depend on the orientation of the line, and neither does the most confident of them.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.groups import Group
from gcsa.tasks.recognition.choices import ORIENTATIONS

CALIBRATION = 0.4235, -1.2032
"""Slope and offset of a logistic regression of the share of characters that are right on the square of the logit of what the network says of
itself, by lines of seven scripts and periods (`python -m benchmarks.text.confidence`), with the `gcsa_ocr_tiny.french` of commit 803012d as one of
three networks. Weights can have their own."""
LEAST, MOST = 1e-4, 1 - 1e-4
"""Of what a network says, so that its logarithms are finite."""
CONFIDENT, LOW_CONFIDENCE = 0.9, 0.5
"""Of a page: with less, a tenth, or half of its characters are expected to be wrong."""
TIE = 1e-4
"""Confidences that differ by less are equal, because rounding errors differ between a line and its rotated copy."""


class Character(NamedTuple):
    """A character in its line: from `start` to `end`, shares of the line's length, and its probability."""

    character: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Reading:
    """What a line says.

    Attributes:
        text: in logical order, as `gcsa.tasks.recognition.data.charset.normalize` gives it.
        confidence: from 0 to 1; of `read_lines` the share of the characters that is expected to be right (`calibrated`).
        orientation: degrees, counter-clockwise, by which the line is rotated.
        characters: from left to right; empty where their positions are not known.
    """

    text: str
    confidence: float
    orientation: int = 0
    characters: tuple[Character, ...] = field(default=(), repr=False)


def calibrated(reading: Reading, calibration: tuple[float, float] = CALIBRATION) -> Reading:
    """A reading whose confidence is the share of its characters that is expected to be right, by slope and offset.

    Networks are too sure of scripts that they do not know (Guo et al. 2017, arXiv:1706.04599). The probabilities of its characters are
    raised to the power that makes the confidence their geometric mean.
    """
    if not reading.text:
        return reading
    own = min(max(reading.confidence, LEAST), MOST)
    logit = math.log(own / (1 - own))
    slope, offset = calibration
    right = 1 / (1 + math.exp(-slope * logit * abs(logit) - offset))
    sure = [min(max(character.confidence, LEAST), MOST) for character in reading.characters]
    power = math.log(right) * len(sure) / sum(map(math.log, sure)) if sure else 1.0
    characters = (c._replace(confidence=p**power) for c, p in zip(reading.characters, sure, strict=True))
    return replace(reading, confidence=right, characters=tuple(characters))


def normalized(characters: Iterable[Character]) -> tuple[Character, ...]:
    """`characters` without a space at either end or behind another; a letter and its accent are one where NFC composes them."""
    kept: list[Character] = []
    for new in characters:
        last = kept[-1] if kept else None
        if new.character == " " and (last is None or last.character == " "):
            continue
        if last is not None and (composed := _composed(last.character, new.character)):
            kept[-1] = Character(composed, last.start, new.end, min(last.confidence, new.confidence))
        else:
            kept.append(new)
    return tuple(kept[:-1] if kept and kept[-1].character == " " else kept)


def cuts_of(characters: Sequence[Character]) -> list[tuple[float, float]]:
    """Where each character starts and ends, shares of the line's length; neighbours meet half way between them."""
    if not characters:
        return []
    middles = [(a.end + b.start) / 2 for a, b in pairwise(characters)]
    return list(zip([characters[0].start, *middles], [*middles, characters[-1].end], strict=True))


def _composed(left: str, right: str) -> str:
    """The one character that NFC makes of two neighbours, or nothing. From right to left an accent precedes its letter."""
    leftward = unicodedata.combining(left) and unicodedata.bidirectional(right) in ("R", "AL")
    composed = unicodedata.normalize("NFC", right + left if leftward else left + right)
    return composed if len(composed) == 1 else ""


def most_confident(readings: Mapping[int, Reading]) -> Reading:
    """The most confident of a line's readings; of equal ones the first by text, whatever the line's orientation."""
    best = max(reading.confidence for reading in readings.values())
    equal = [reading for reading in readings.values() if reading.confidence > best - TIE]
    return min(equal, key=lambda reading: reading.text)


def mean_confidence(readings: Iterable[tuple[float, float]]) -> float:
    """Of readings of (length, confidence), each weighted by its length; 0 without any characters."""
    pairs = list(readings)
    return sum(length * confidence for length, confidence in pairs) / (sum(length for length, _ in pairs) or 1)


def text_orientation(readings: Sequence[Reading]) -> int:
    """Degrees, counter-clockwise, by which most of the text is rotated."""
    votes = {
        degrees: sum(len(reading.text) for reading in readings if reading.orientation == degrees)
        for degrees in (0, 90, 180, 270)
    }
    return max(votes, key=lambda degrees: votes[degrees])


def page_orientation(lines: Sequence[Mapping[int, Reading]], lengths: Sequence[float]) -> int:
    """The degrees by which a page is rotated: each line votes for its orientations with confidence times length.

    A line that is too long to have been read in an orientation has no vote for it. Ties go to the first of 0, 180, 90, 270.
    """
    votes = {
        degrees: sum(
            length * readings[degrees].confidence
            for readings, length in zip(lines, lengths, strict=True)
            if degrees in readings
        )
        for degrees in (0, 180, 90, 270)
    }
    return max(votes, key=lambda degrees: votes[degrees])


def check_orientation(orientation: str, group: Group) -> None:
    """Raises ValueError for an unknown orientation, and for "any" with a group without rotations by 90 degrees."""
    if orientation not in ORIENTATIONS:
        raise UserError(f"unknown orientation {orientation!r}: choose {' or '.join(ORIENTATIONS)}", "orientation")
    if orientation == "any" and group.rotations % 4 != 0:
        raise UserError(
            f"an encoder of group {group} does not read rotated lines: use orientation='upright', or train one with "
            "group=c4",
            "orientation.group",
        )


def orientations(group: Group, orientation: str, high: int, wide: int, height: int) -> dict[int, int]:
    """The orientations in which lines of `high` x `wide` pixels are read, as {degrees: element of the group}.

    "upright" gives 0 degrees. "any" gives every rotation by 90 degrees of a line of `height` pixels: 0 and 180 degrees for
    a line that is longer than high, 90 and 270 for one that is higher than long, all four for a square.

    Raises ValueError for what `check_orientation` refuses, and for lines of another height.
    """
    check_orientation(orientation, group)
    sides = (high,) if orientation == "upright" else (high, wide, high, wide)
    elements = {90 * k: k * group.rotations // 4 for k, side in enumerate(sides) if side == height}
    if not elements:
        raise UserError(f"lines must be {height} pixels high, not {high} x {wide}: use fit_line", "input.height")
    return elements


def to_upright(features: Tensor, group: Group, g: int) -> Tensor:
    """g^-1 F: the features (B, H, W, N, C) of lines rotated by g as those of the upright lines."""
    return group.act(features, int(group.inverse[g]))
