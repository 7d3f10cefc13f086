"""Lines cut from the image of a page: the box of a polygon, of which a line that is not flat is straightened first.

A smooth curve y = c(x) is fitted to the base line: a straight one where that fits, else a cubic. At arc length s along the curve and
distance v from it, the straightened line shows what the page shows at c(s) + v n(s), where n(s) is the unit normal. It is resampled
once, bilinearly. For a straight base line, this is a rotation. Without a base line, the principal axis of the polygon's area is used.

A line is flat where its curve rises and falls by less than `FLAT` of the line's thickness. A flat line is cut as it is: recognisers
learned from such lines. The line is first rotated by a multiple of 90 degrees so that it lies, which moves pixels without changing
them, so cutting commutes with rotations of the page by 90 degrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from PIL import Image, ImageDraw
from scipy.ndimage import map_coordinates

from gcsa._utils.arrays import Array

FLAT = 0.25
"""Of the thickness of a line."""
STRAIGHT = 0.06
"""Of the thickness of a line: base lines that depart less from a straight one are straight, and kraken's jitter by that much."""
ASTRAY = 0.5
"""Of the thickness: a base line that departs more from its cubic, such as text in a circle, is no curve y = c(x)."""
ELONGATED = 3
"""A polygon without a base line tells its direction if its length is this many times its thickness."""
LEAST_BASELINE = 0.5
"""Of the extent of its polygon: a shorter base line does not tell the course of the line."""
MAX_PIXELS = 1 << 25
"""Of a line as it lies on the page: a fifth of what a page may have."""
LONGEST = 1 << 17
"""Pixels: a polygon that is longer reaches far beyond any page."""
SAMPLES = 64
"""Points of a base line and of its curve."""
MAX_SIDES = 4096
"""Of the polygon of a straightened line."""
FOOT_POINT_STEPS = 8

Points = tuple[tuple[float, float], ...]


class FoundLine(NamedTuple):
    """Polygon and base line (pixels x, y) of a line on the image of a page."""

    polygon: Points
    baseline: Points

    def rotated(self, degrees: int, shape: tuple[int, ...]) -> FoundLine:
        """After a rotation of the page of `shape` (H, W) by a multiple of 90 degrees counter-clockwise."""
        return FoundLine(*(rotate_points(points, degrees, shape) for points in self))


def cut(
    page: Array, polygon: Sequence[tuple[float, float]], baseline: Sequence[tuple[float, float]] | None = None
) -> tuple[Array, Array]:
    """A line on `page` (H, W), straightened where it is not flat: grey values and, True inside the polygon, (h, w).

    polygon, baseline: pixels x, y; the base line in the direction of reading or against it.
    """
    straightened = straighten(page, polygon, baseline)
    return cut_box(page, polygon) if straightened is None else straightened


def cut_box(page: Array, polygon: Sequence[tuple[float, float]]) -> tuple[Array, Array]:
    """The bounding box of `polygon` on `page` (H, W), clipped to it: grey values and, True inside the polygon, (h, w)."""
    xs, ys = zip(*polygon, strict=True)
    left, top = max(0, math.floor(min(xs))), max(0, math.floor(min(ys)))
    grey = page[top : max(top, math.ceil(max(ys)) + 1), left : max(left, math.ceil(max(xs)) + 1)]
    return grey, _mask(grey.shape, [(x - left, y - top) for x, y in polygon])


def rotate_points(points: Iterable[tuple[float, float]], degrees: int, shape: tuple[int, ...]) -> Points:
    """`points` (x, y) of an image of `shape` (H, W) after its rotation by a multiple of 90 degrees counter-clockwise."""
    h, w = shape
    for _ in range(degrees // 90 % 4):
        points, h, w = [(y, w - 1 - x) for x, y in points], w, h
    return tuple(points)


def straighten(
    page: Array, polygon: Sequence[tuple[float, float]], baseline: Sequence[tuple[float, float]] | None
) -> tuple[Array, Array] | None:
    """As `cut`; None for a line that is flat, or whose course cannot be told."""
    limits = np.array(page.shape[::-1]) - 1
    outline = np.clip(np.array(polygon, float), 0, limits)
    course = None if baseline is None else np.clip(np.array(baseline, float), 0, limits)
    turns = _quarter_turns(outline, course if _tells(course, outline) else None)
    lying = np.rot90(page, -turns)
    outline = np.array(rotate_points(map(tuple, outline), -90 * turns, page.shape))
    if course is not None:
        course = np.array(rotate_points(map(tuple, course), -90 * turns, page.shape))
    strip = strip_of(outline, course)
    found = None if strip is None else _along(lying, strip)
    return None if found is None else (np.rot90(found[0], turns), np.rot90(found[1], turns))


def _tells(course: Array | None, outline: Array) -> bool:
    """Whether a base line tells the course of the line."""
    return course is not None and bool(np.ptp(course, 0).max() >= LEAST_BASELINE * np.ptp(outline, 0).max())


def _quarter_turns(outline: Array, course: Array | None) -> int:
    """By how many rotations of 90 degrees counter-clockwise a line is rotated on the page: 0 of one that lies."""
    across, along = np.ptp(outline, 0) if course is None else course[-1] - course[0]
    return round(math.atan2(-along, across) / (math.pi / 2)) % 4


class Curve(NamedTuple):
    """y = c(x), a `polynomial` from `start` to `end`, straight before and behind; `thickness` is that of the line around it."""

    polynomial: Polynomial
    start: float
    end: float
    thickness: float

    def slope(self, x: Array) -> Array:
        slopes: Array = self.polynomial.deriv()(np.clip(x, self.start, self.end))
        return slopes

    def height(self, x: Array) -> Array:
        inner = np.clip(x, self.start, self.end)
        heights: Array = self.polynomial(inner) + self.slope(x) * (x - inner)
        return heights

    def is_flat(self) -> bool:
        heights = self.height(np.linspace(self.start, self.end, SAMPLES))
        return bool(np.ptp(heights) < FLAT * self.thickness)

    def foot_points(self, points: Array) -> Array:
        """The x of the point of the curve that is nearest to each of `points` (n, 2), by Newton's steps without curvature."""
        x, y = points.T
        foot = x
        for _ in range(FOOT_POINT_STEPS):
            slope = self.slope(foot)
            foot = foot + (x - foot + (y - self.height(foot)) * slope) / (1 + slope**2)
        return foot


def fit_curve(outline: Array, course: Array | None) -> Curve | None:
    """The curve of a line that lies: of its base line `course` (n, 2), or else of its `outline` (m, 2). None if there is none."""
    area, centre, moments = _area_moments(outline)
    if area < 1:
        return None
    if course is None:
        (short, long), axes = np.linalg.eigh(moments)
        along = axes[:, 1]
        if long < ELONGATED**2 * max(short, 0) or abs(along[0]) < abs(along[1]):
            return None
        slope = along[1] / along[0]
        line = Polynomial([centre[1] - slope * centre[0], slope])
        return Curve(line, outline[:, 0].min(), outline[:, 0].max(), area / np.ptp(outline @ along))
    chord = course[-1] - course[0]
    if abs(chord[0]) < max(1.0, abs(chord[1])):  # it ends where it starts, or the line was read across it
        return None
    thickness = area / max(1.0, np.ptp(outline @ chord) / np.hypot(*chord))
    x, y = _evenly(course).T
    for degree, tolerance in ((1, STRAIGHT), (3, ASTRAY)):
        fitted = Polynomial.fit(x, y, degree).convert()
        if np.abs(fitted(x) - y).max() <= tolerance * thickness:
            return Curve(fitted, x.min(), x.max(), thickness)
    return None


def _evenly(course: Array) -> Array:
    """`SAMPLES` points (x, y) at equal distances along a polyline."""
    lengths = np.concatenate([[0], np.hypot(*np.diff(course, axis=0).T).cumsum()])
    at = np.linspace(0, lengths[-1], SAMPLES)
    return np.stack([np.interp(at, lengths, side) for side in course.T], 1)


def _area_moments(outline: Array) -> tuple[float, Array, Array]:
    """Area, centroid and second central moments (2, 2) of a polygon (m, 2), by Green's theorem."""
    origin = outline.mean(0)
    a = outline - origin
    b = np.roll(a, -1, 0)
    cross = a[:, 0] * b[:, 1] - b[:, 0] * a[:, 1]
    area = cross.sum() / 2
    if not abs(area) > 0:
        return 0.0, origin, np.eye(2)
    centre = ((a + b) * cross[:, None]).sum(0) / (6 * area)
    products = sum(np.einsum("ni,nj,n->ij", p, q, cross) for p, q in ((a, a), (b, b), (a + b, a + b)))
    return abs(area), centre + origin, products / (24 * area) - np.outer(centre, centre)


class Strip:
    """The surroundings of the `curve` of a line that lies, in coordinates s, the length along the curve, and v, the distance from it.

    outline: the polygon (m, 2) of the line in s and v.
    """

    def __init__(self, curve: Curve, outline: Array) -> None:
        outline = _divided(outline, curve.thickness)
        foot = curve.foot_points(outline)
        self.curve = curve
        self.x = np.arange(math.floor(foot.min()) - 1, math.ceil(foot.max()) + 2, dtype=float)
        steps = np.hypot(np.diff(self.x), np.diff(curve.height(self.x)))
        self.arc = np.concatenate([[0], steps.cumsum()])
        slope = curve.slope(foot)
        distance = (outline[:, 1] - curve.height(foot) - slope * (outline[:, 0] - foot)) / np.hypot(1, slope)
        self.outline = np.stack([np.interp(foot, self.x, self.arc), distance], 1)

    def on_page(self, s: Array, v: Array) -> tuple[Array, Array]:
        """x and y of points."""
        foot = np.interp(s, self.arc, self.x)
        slope = self.curve.slope(foot)
        normal = np.stack([-slope, np.ones(len(slope))]) / np.hypot(1, slope)
        return foot + v * normal[0], self.curve.height(foot) + v * normal[1]


def strip_of(outline: Array, course: Array | None) -> Strip | None:
    """That of a line that lies, of its polygon (m, 2) and its base line (n, 2); None where it is flat or longer than `LONGEST`, or its
    course cannot be told."""
    if np.ptp(outline[:, 0]) > LONGEST:
        return None
    curve = fit_curve(outline, course if _tells(course, outline) else None)
    return None if curve is None or curve.is_flat() else Strip(curve, outline)


def _along(page: Array, strip: Strip) -> tuple[Array, Array] | None:
    """Levels and mask (h, w) of what lies within the outline of `strip`; None if that is too much for one line."""
    box = strip.outline
    w, h = (math.ceil(extent) + 1 for extent in np.ptp(box, 0))
    if w * h > MAX_PIXELS:
        return None
    first = (box.max(0) + box.min(0)) / 2 - (np.array([w, h]) - 1) / 2
    xs, ys = strip.on_page(first[0] + np.arange(w), first[1] + np.arange(h)[:, None])
    grey = map_coordinates(page, [ys, xs], np.float32, order=1, mode="nearest")
    if page.dtype.kind in "ui":
        grey = np.rint(grey).astype(page.dtype)
    on_page = (xs >= 0) & (xs <= page.shape[1] - 1) & (ys >= 0) & (ys <= page.shape[0] - 1)
    return grey, _mask((h, w), [(s, v) for s, v in (box - first).tolist()]) & on_page


def _divided(outline: Array, step: float) -> Array:
    """A polygon (m, 2) whose long sides are divided, as they become curves."""
    ends = np.roll(outline, -1, 0)
    lengths = np.hypot(*(ends - outline).T)
    step = max(step, lengths.sum() / MAX_SIDES)
    pieces = [
        np.linspace(a, b, max(1, math.ceil(length / step)), endpoint=False)
        for a, b, length in zip(outline, ends, lengths, strict=True)
    ]
    return np.concatenate(pieces)


def _mask(shape: tuple[int, ...], polygon: Sequence[tuple[float, float]]) -> Array:
    """True within `polygon`, (h, w)."""
    mask = Image.new("L", (shape[1], shape[0]))
    if mask.width and mask.height:
        ImageDraw.Draw(mask).polygon(list(polygon), fill=1)
    return np.asarray(mask, dtype=bool)
