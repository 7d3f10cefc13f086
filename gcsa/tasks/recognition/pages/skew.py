"""By how much the lines of a page are skewed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from gcsa._utils.arrays import Array
from gcsa.tasks.recognition.data.cutting import FoundLine

REDUCED = 1500
"""Pixels of the longer side of a page whose ink tells its skew."""
LEAST_REACH, STEPS = 2.0, (0.25, 0.05)
"""Degrees beyond twice the rough skew up to which the skew is sought, also on the other side; and the steps, the second around the best
of the first."""


def skew(lines: Sequence[FoundLine], page: Array) -> float:
    """By how many degrees counter-clockwise the lines of an upright page (H, W, 3) are rotated; 0 without any.

    The baselines say it roughly: their median, weighted by length. Those of a page with much skew may be too flat, where its lines
    were broken. So their ink then says it: where the rows of a page lie along its lines, they are darkest and lightest (Postl 1986,
    Detection of linear oblique structures and skew scan in digitized documents).
    """
    chords = np.array([np.subtract(line.baseline[-1], line.baseline[0]) for line in lines]).reshape(-1, 2)
    if not len(chords):
        return 0.0
    degrees = np.degrees(np.arctan2(-chords[:, 1], chords[:, 0]))
    lengths = np.hypot(*chords.T)
    order = np.argsort(degrees)
    reached = lengths[order].cumsum() >= lengths.sum() / 2
    rough = float(degrees[order][reached][0])
    columns, rows, ink = _ink(lines, page)
    if not len(ink):
        return rough

    def contrast(angle: float) -> float:
        along = rows * np.cos(np.radians(angle)) + columns * np.sin(np.radians(angle))
        return float((np.diff(np.bincount((along - along.min()).round().astype(int), ink)) ** 2).sum())

    reach = LEAST_REACH + abs(rough)
    coarse = max(np.arange(rough - reach, rough + reach, STEPS[0]), key=contrast)
    return float(max(np.arange(coarse - STEPS[0], coarse + STEPS[0], STEPS[1]), key=contrast))


def _ink(lines: Sequence[FoundLine], page: Array) -> tuple[Array, Array, Array]:
    """Columns, rows and amounts of what is darker than the paper in the lines of a page (H, W, 3), reduced to about `REDUCED` pixels."""
    step = max(1, round(max(page.shape[:2]) / REDUCED))
    grey = page[: page.shape[0] // step * step, : page.shape[1] // step * step].mean(2)
    grey = grey.reshape(grey.shape[0] // step, step, -1, step).mean((1, 3))
    mask = Image.new("1", grey.shape[::-1])
    draw = ImageDraw.Draw(mask)
    for line in lines:
        if len(line.polygon) > 2:
            draw.polygon([(x / step, y / step) for x, y in line.polygon], fill=1)
    inside = np.asarray(mask)
    if not inside.any():
        return np.zeros(0), np.zeros(0), np.zeros(0)
    ink = np.where(inside, np.median(grey[inside]) - grey, 0).clip(0)
    rows, columns = ink.nonzero()
    return columns, rows, ink[rows, columns]
