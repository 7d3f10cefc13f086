"""Reading a feature map in every frame that the line may have been scanned in.

With H = c4 the features of a turned line are the turned features of the line, their group axis permuted:
F(g line) = g F(line). Read in the frame g, as g^-1 F, they are therefore the upright line's features, whatever comes
after. So the set of readings over all frames does not depend on how the line is turned, nor does the best of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.groups import Group

ORIENTATIONS = ("upright", "any")


TIE = 1e-4
"""Confidences that differ by less are equal: a turned image is read with other rounding errors."""


class Sign(NamedTuple):
    """A character as it stands in the line: from `start` to `end`, shares of the line's length, and its probability."""

    character: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Reading:
    """What a line says, how certain that is (0 to 1), and by how many degrees, counter-clockwise, the line is turned.

    `signs` are its characters from left to right, where the places are known.
    """

    text: str
    confidence: float
    turn: int = 0
    signs: tuple[Sign, ...] = ()


def most_confident(readings: Mapping[int, Reading]) -> Reading:
    """Of a line's readings, the most confident; of equal ones the first by text, however the line is turned."""
    best = max(reading.confidence for reading in readings.values())
    equal = [reading for reading in readings.values() if reading.confidence > best - TIE]
    return min(equal, key=lambda reading: reading.text)


def turn_of_page(lines: Sequence[Mapping[int, Reading]], lengths: Sequence[float]) -> int:
    """By how many degrees a page is turned, as the readings of its lines say: each counts with its confidence and its length.

    A line that cannot have been read in a frame, as it is too long that way, says nothing for it. Ties go to the turn
    that comes first in 0, 180, 90, 270.
    """
    votes = {
        turn: sum(
            length * readings[turn].confidence
            for readings, length in zip(lines, lengths, strict=True)
            if turn in readings
        )
        for turn in (0, 180, 90, 270)
    }
    return max(votes, key=lambda turn: votes[turn])


def check_orientation(orientation: str, group: Group) -> None:
    """Raises ValueError for an unknown orientation, and for "any" with a group that lacks quarter turns."""
    if orientation not in ORIENTATIONS:
        raise UserError(f"unknown orientation {orientation!r}: choose {' or '.join(ORIENTATIONS)}")
    if orientation == "any" and group.rotations % 4 != 0:
        raise UserError(
            f"an encoder of group {group} does not read turned lines: use orientation='upright', or train one with "
            "group=c4"
        )


def frames(group: Group, orientation: str, high: int, wide: int, height: int) -> dict[int, int]:
    """The frames in which lines of `high` x `wide` pixels are read, as {degrees: g}.

    Upright, that is the page's own. With "any" it is every quarter turn g of a line of `height` pixels: 0 and 180 degrees
    for a line that is longer than high, 90 and 270 for one that is higher than long, all four for a square.

    Raises ValueError for what `check_orientation` refuses, and for lines of another height.
    """
    check_orientation(orientation, group)
    sides = (high,) if orientation == "upright" else (high, wide, high, wide)
    turns = {90 * turn: turn * group.rotations // 4 for turn, side in enumerate(sides) if side == height}
    if not turns:
        raise UserError(f"lines must be {height} pixels high, not {high} x {wide}: use fit_line")
    return turns


def in_frame(features: Tensor, group: Group, g: int) -> Tensor:
    """g^-1 F: features (B, H, W, N, C) as they would be, had the line not been turned by g."""
    return group.act(features, int(group.inverse[g]))
