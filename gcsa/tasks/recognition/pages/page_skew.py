"""The skew of a page from its ink alone (Postl 1986, Detection of linear oblique structures and skew scan in digitized documents).

Where rows of pixels lie along the lines of the text, they are darkest and lightest by turns. The skew is the angle at which neighbouring
rows differ most, or neighbouring columns where the text runs downwards.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch.nn import functional as F

from gcsa._utils.arrays import Array
from gcsa.tasks.recognition.pages.orientation import LEAST_CONTRAST, even_contrast

SOUGHT, MAX_DEGREES = 20.0, 16.0
"""Degrees: a page that seems to be skewed by more shows no lines, as pictures do."""
LEAST_PROMINENCE = 1.25
"""Of the best angle, as a multiple of the median: noise had 1.1, the least of 22 pages with text 1.28."""
SIDE = 1000
"""Pixels of the longer side of a page whose ink tells its skew."""
STEPS = (0.5, 0.1, 0.02)
"""Degrees: all angles, then those around the best of the steps before."""
LAG = 3
"""Pixels between the lines of pixels that are compared: neighbouring ones would see the grid of the pixels themselves at 0 degrees."""
EDGE = 0.02
"""Of each side, where the shadow of the scanner lies."""


def page_skew(grey: Array) -> float:
    """By how many degrees counter-clockwise the lines of an upright page with the `grey` values (H, W) are rotated, at most
    `MAX_DEGREES`; 0 on a page that shows no lines."""
    rows, columns, ink = _ink(grey)
    if not len(ink):
        return 0.0
    angles = np.arange(-SOUGHT, SOUGHT + STEPS[0], STEPS[0])
    found = np.array([_contrasts(rows, columns, ink, angle) for angle in angles])
    prominence = found.max(0) / np.median(found, 0)
    axis = int(np.argmax(prominence))
    best = angles[found[:, axis].argmax()]
    if prominence[axis] < LEAST_PROMINENCE or abs(best) > MAX_DEGREES:
        return 0.0
    for before, step in itertools.pairwise(STEPS):
        near = np.arange(best - before, best + before + step / 2, step)
        best = max(near, key=lambda angle: _contrasts(rows, columns, ink, angle)[axis])
    return float(best)


def _contrasts(rows: Array, columns: Array, ink: Array, degrees: float) -> tuple[float, float]:
    """How much the ink changes from line to line of pixels, of those that run across and of those that run down a page skewed by `degrees`."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    found = []
    for place in (rows * cos + columns * sin, columns * cos - rows * sin):
        profile = np.bincount((place - place.min()).round().astype(int), ink)
        found.append(float(np.abs(profile[LAG:] - profile[:-LAG]).sum()))
    return found[0], found[1]


def _ink(grey: Array) -> tuple[Array, Array, Array]:
    """Rows, columns and amounts of what is darker than its neighbourhood, or lighter where that is less, as on white on black."""
    factor = SIDE / max(grey.shape)
    page = torch.from_numpy(np.ascontiguousarray(grey, dtype=np.float64))[None, None]
    size = [max(8, round(length * factor)) for length in grey.shape]
    even, difference = even_contrast(F.interpolate(page, size, mode="bilinear", antialias=True, align_corners=False))
    ink = (-even * (difference.abs() > LEAST_CONTRAST))[0, 0].numpy()
    ink = ink.clip(0) if (ink > 1).sum() <= (ink < -1).sum() or (ink < -1).sum() == 0 else (-ink).clip(0)
    margin = [round(EDGE * length) for length in ink.shape]
    inside = ink[margin[0] : ink.shape[0] - margin[0], margin[1] : ink.shape[1] - margin[1]]
    rows, columns = inside.nonzero()
    return rows, columns, inside[rows, columns]
