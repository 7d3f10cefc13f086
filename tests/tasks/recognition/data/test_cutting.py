"""Flat lines are the boxes of their polygons, bit for bit; all others lie straight, whatever the orientation of the page."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from gcsa.tasks.recognition.data.cutting import cut, rotate_points
from gcsa.tasks.recognition.data.line_image import Line, read_line

Points = list[tuple[float, float]]
Move = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Takes a point of a straight line, along it and across, to x and y on the page."""

LENGTH, THICKNESS = 400, 40
SKEWS = (-14.0, -3.0, 3.0, 7.0)


def letters(along: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Grey values of a line: strokes with smooth sides on a base line 10 pixels below its middle."""
    strokes = np.clip(3 * np.sin(along / 5) - 0.5, 0, 1) * np.clip(12 - np.abs(across), 0, 1)
    return np.where(np.abs(along) < LENGTH / 2, 220 - 200 * strokes, 220.0)


def skewed(degrees: float) -> Move:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return lambda s, v: (300 + s * cos + v * sin, 150 - s * sin + v * cos)


def page(degrees: float) -> np.ndarray:
    """A page (300, 600) with a line about its middle, rotated counter-clockwise, and ink above and below it."""
    ys, xs = np.mgrid[:300, :600]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = xs - 300, ys - 150
    along, across = x * cos - y * sin, x * sin + y * cos
    grey = letters(along, across)
    grey[np.abs(across) > 26] = 20
    return np.rint(grey).astype(np.uint8)


def outline(move: Move) -> tuple[Points, Points]:
    """Polygon and base line of the line."""
    s, v = np.array([-1, 1, 1, -1]) * LENGTH / 2, np.array([-1, -1, 1, 1]) * THICKNESS / 2
    baseline = move(np.array([-LENGTH / 2, LENGTH / 2]), np.array([10.0, 10.0]))
    return [*zip(*move(s, v), strict=True)], [*zip(*baseline, strict=True)]


def box(grey: np.ndarray, polygon: Points) -> tuple[np.ndarray, np.ndarray]:
    """How every line was cut in version 0.1.0 before lines were straightened."""
    xs, ys = zip(*polygon, strict=True)
    left, top = max(0, math.floor(min(xs))), max(0, math.floor(min(ys)))
    window = grey[top : max(top, math.ceil(max(ys)) + 1), left : max(left, math.ceil(max(xs)) + 1)]
    mask = Image.new("L", (window.shape[1], window.shape[0]))
    ImageDraw.Draw(mask).polygon([(x - left, y - top) for x, y in polygon], fill=1)
    return window, np.asarray(mask, dtype=bool)


def equal(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> bool:
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("degrees", [0.0, 0.4, -0.6])
def test_flat_lines_are_cut_as_they_are(degrees: float) -> None:
    """Also where the base line jumps by a few pixels, as kraken's does."""
    grey, (polygon, baseline) = page(degrees), outline(skewed(degrees))
    jumps = [(x, 160.0 + (-1) ** i * 3) for i, x in enumerate(range(100, 501, 25))]
    for course in (None, baseline, baseline[::-1], jumps):
        assert equal(cut(grey, polygon, course), box(grey, polygon))


@pytest.mark.parametrize("degrees", SKEWS)
def test_a_skewed_line_is_rotated(degrees: float) -> None:
    """By its base line, in either direction, or by its polygon."""
    grey, (polygon, baseline) = page(degrees), outline(skewed(degrees))
    for course in (baseline, baseline[::-1], None):
        found, inside = cut(grey, polygon, course)
        assert found.shape in ((41, 401), (42, 401), (41, 402), (42, 402))
        assert inside.mean() > 0.95
        v, s = (np.arange(n) - (n - 1) / 2 for n in found.shape)
        wrong = np.abs(found - letters(s, v[:, None]))[inside]
        assert wrong.mean() < 3
        assert (found[inside] < 40).mean() == pytest.approx((letters(s, v[:, None])[inside] < 40).mean(), abs=0.02)
    assert box(grey, polygon)[0].shape[0] > 1.5 * THICKNESS


def test_a_curved_line_is_straightened() -> None:
    """An arc of 30 pixels, three quarters of the thickness of the line."""
    radius = LENGTH**2 / (8 * 30)

    def arc(s: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 300 + (radius - v) * np.sin(s / radius), 150 + radius - (radius - v) * np.cos(s / radius)

    ys, xs = np.mgrid[:300, :600]
    away = np.hypot(xs - 300, ys - 150 - radius)
    grey = np.rint(letters(radius * np.arctan2(xs - 300, radius + 150 - ys), radius - away)).astype(np.uint8)
    s = np.linspace(-LENGTH / 2, LENGTH / 2, 9)
    sides = [arc(s, np.full(9, -20.0)), arc(s[::-1], np.full(9, 20.0))]
    polygon = [point for side in sides for point in zip(*side, strict=True)]
    found, inside = cut(grey, polygon, [*zip(*arc(s, np.full(9, 10.0)), strict=True)])
    assert found.shape[0] in (41, 42, 43)
    v, columns = (np.arange(n) - (n - 1) / 2 for n in found.shape)
    # The arc of the base line is longer than that of the middle.
    truth = letters(columns * radius / (radius - 10), v[:, None])
    assert np.abs(found - truth)[inside].mean() < 6
    assert np.abs(np.flip(found, 1) - truth)[inside].mean() > 30, "the strokes are not their own reflection"


@pytest.mark.parametrize("degrees", SKEWS)
@pytest.mark.parametrize("with_baseline", [True, False])
def test_cutting_commutes_with_quarter_turns(degrees: float, with_baseline: bool, tmp_path: Path) -> None:
    grey = page(degrees)
    polygon, baseline = ([(round(x), round(y)) for x, y in points] for points in outline(skewed(degrees)))
    upright, inside = cut(grey, polygon, baseline if with_baseline else None)
    for turns in (1, 2, 3):
        turned, course = (tuple(rotate_points(points, 90 * turns, grey.shape)) for points in (polygon, baseline))
        found = cut(np.rot90(grey, turns), turned, course if with_baseline else None)
        if not with_baseline:  # the axis of a polygon has no direction, and Pillow's polygons are not symmetric
            assert np.abs(found[0].astype(int) - np.rot90(upright, turns)).max() <= 1
            assert (found[1] == np.rot90(inside, turns)).mean() > 0.9
            continue
        assert equal(found, (np.rot90(upright, turns), np.rot90(inside, turns)))
        file = tmp_path / f"{turns}.png"
        Image.fromarray(np.rot90(grey, turns)).save(file)
        line = Line(file, polygon=turned, baseline=course)
        known = read_line(line._replace(orientation=90 * turns))
        assert torch.equal(known.rot90(turns, (1, 2)), read_line(line))


def test_where_the_course_cannot_be_told_the_box_is_cut() -> None:
    grey, (polygon, baseline) = page(0), outline(skewed(0))
    round_about = [(300 + 190 * math.cos(a), 150 - 19 * math.sin(a)) for a in np.linspace(math.pi, -math.pi / 2, 30)]
    part = [(200.0, 160.0), (260.0, 180.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for course in (round_about, [*round_about, round_about[0]], part, [(300.0, 160.0)] * 3):
            assert equal(cut(grey, polygon, course), box(grey, polygon))
    s, v = np.array([-30, 30, 30, -30]), np.array([-20, -20, 20, 20])
    short = [*zip(*skewed(30)(s, v), strict=True)]
    assert equal(cut(grey, short), box(grey, short)), "a polygon that is hardly longer than high has no direction"
    for nothing in ([(5, 5), (9, 9), (7, 7)], [(700, 5), (900, 5), (900, 50)]):
        assert equal(cut(grey, nothing, baseline), box(grey, nothing))


def test_what_lies_beyond_the_page_is_outside_and_takes_no_memory() -> None:
    grey = np.full((300, 600), 40_000, np.uint16)
    polygon = [(400, 300), (1e7, -2e6), (1e7, -2e6 + 40), (400, 340)]
    found, _ = cut(grey, polygon, [(400, 330), (1e7, -2e6 + 30)])
    assert found.dtype == np.uint16
    assert max(found.shape) < 1000
    for degrees in SKEWS:
        move = skewed(degrees)
        found, _ = cut(grey, *outline(lambda s, v, move=move: move(s + 250, v)))
        assert (found == 40_000).all()
        assert found.shape[1] < LENGTH, "its end is missing"
