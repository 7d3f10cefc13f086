"""The audit of a recogniser: how its texts change when images rotate by multiples of 90 degrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torchmetrics.functional.text import char_error_rate

from gcsa._utils.arrays import Array
from gcsa.evaluation.poses import Change, Turn


def audit(
    predictor: Any, pictures: Iterable[Array], advance: Callable[[int], object] = lambda count: None
) -> list[Change]:
    """The changes of the texts of pictures (H, W, C) at 90, 180 and 270 degrees; a reflected text is none. A network without rotations
    by 90 degrees reads the pictures as they lie. `advance` is called with the number of images that were read."""
    quarters, orientation = range(4), "any" if predictor.group.rotations % 4 == 0 else "upright"
    texts: list[list[str]] = [[] for _ in quarters]
    for picture in pictures:
        for k in quarters:
            texts[k].append(predictor.predict(np.ascontiguousarray(np.rot90(picture, k)), orientation).text)
            advance(1)
    upright, *others = texts
    if not upright:
        return []
    return [_change(90.0 * k, upright, turned) for k, turned in enumerate(others, 1)]


def _change(degrees: float, upright: list[str], turned: list[str]) -> Change:
    lines = sum(one != other for one, other in zip(upright, turned, strict=True)) / len(upright)
    characters = float(char_error_rate(turned, upright)) if any(upright) else float(lines)
    return Change(Turn(degrees), lines, texts=lines, characters=characters)
