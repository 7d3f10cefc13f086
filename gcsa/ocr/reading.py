"""Reading a feature map in every frame that the line may have been scanned in.

With H = c4 the features of a turned line are the turned features of the line, their group axis permuted:
F(g line) = g F(line). Read in the frame g, as g^-1 F, they are therefore the upright line's features, whatever comes
after. So the set of readings over all frames does not depend on how the line is turned, nor does the best of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gcsa.groups import Group

ORIENTATIONS = ("upright", "any")


@dataclass(frozen=True)
class Reading:
    """What a line says, how certain that is (0 to 1), and by how many degrees, counter-clockwise, the line is turned."""

    text: str
    confidence: float
    turn: int = 0


def check_orientation(orientation: str, group: Group) -> None:
    """Raises ValueError for an unknown orientation, and for "any" with a group that lacks quarter turns."""
    if orientation not in ORIENTATIONS:
        raise ValueError(f"unknown orientation {orientation!r}: choose {' or '.join(ORIENTATIONS)}")
    if orientation == "any" and group.rotations % 4 != 0:
        raise ValueError(
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
        raise ValueError(f"lines must be {height} pixels high, not {high} x {wide}: use fit_line")
    return turns


def in_frame(features: Tensor, group: Group, g: int) -> Tensor:
    """g^-1 F: features (B, H, W, N, C) as they would be, had the line not been turned by g."""
    return group.act(features, int(group.inverse[g]))
