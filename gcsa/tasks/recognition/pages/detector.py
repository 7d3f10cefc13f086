"""Lines of text on a page, by the small text detector of PP-OCRv6 (Apache-2.0), whose file is in the package rapidocr.

The network is a differentiable binarization (Liao et al. 2020, arXiv:1911.08947). It gives the core of each line: what is left of
the line once its border is cut off, by a distance of A r / L for a line of area A and perimeter L. A line is therefore its core,
enlarged by that distance. Its course is fitted to the middle of the core: a straight line at any angle, or a cubic where the core
is bent, as on a photograph of an open book.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.polynomial import Polynomial
from PIL import Image
from scipy.ndimage import find_objects, label

from gcsa._utils.arrays import Array
from gcsa._utils.errors import MissingExtraError
from gcsa.tasks.recognition.data.cutting import FoundLine, Points

FILE = "models/PP-OCRv6_det_small.onnx"
SIDE = 1152
"""Pixels of the longer side of a page as the network sees it; a smaller page is not enlarged. On 12 validation pages, error rates were
4.05 % with 1152 and 4.15 % with 1600, which takes 1.9 times as long."""
STEP = 32
"""Pixels: sides of the network's input are multiples of it."""
CORE = 0.3
"""Probability of a pixel of a core."""
LEAST_SCORE = 0.5
"""Mean probability of a core."""
LEAST_CORE = 3
"""Pixels: a core that is thinner is a speck."""
GROWTH = 1.6
"""r: cores are made for it."""
END_MARGIN = 0.1
"""Of the height of a line, added at each end, so that no letter is cut. Above and below nothing is, for neighbouring lines would be in it: on 8 validation
pages of four books `crnn.french` had 3.14 % of the characters wrong so, 3.47 % with 0.06 there; on 8 of a fifth book 2.17 and 2.38 %."""
ELONGATED = 2.0
"""A core with a larger ratio of its axes tells the angle of its line; other lines are level."""
BENT = 0.08
"""Of the height of a line: a core whose middle departs more from a straight line is bent."""
SIDES = 12
"""Of the upper and of the lower border of a bent line."""
BASE = 0.24
"""Of the height of a line, from its lower border up to its base line."""


def check_detector() -> None:
    """Raises MissingExtraError where rapidocr or onnxruntime is not installed."""
    if find_spec("rapidocr") is None or find_spec("onnxruntime") is None:
        raise MissingExtraError(
            "finding the lines of a page needs rapidocr and onnxruntime: pip install 'gcsa-vit[ocr]'",
            "detector.missing",
        )


def detect_lines(page: Array) -> list[FoundLine]:
    """The lines on a page (H, W, 3) of 8 bits, in no particular order, at any angle.

    Raises as `check_detector`.
    """
    probabilities = _cores(page)
    labels, _ = label(probabilities > CORE, np.ones((3, 3)))
    scale = np.array(page.shape[1::-1]) / probabilities.shape[::-1]
    lines = []
    for number, window in enumerate(find_objects(labels), 1):
        inside = labels[window] == number
        if min(inside.shape) < LEAST_CORE or probabilities[window][inside].mean() < LEAST_SCORE:
            continue
        rows, columns = inside.nonzero()
        points = np.stack([columns + window[1].start, rows + window[0].start], 1).astype(float)
        found = _line_around(points)
        if found is not None:
            lines.append(FoundLine(*(_scaled(side, scale) for side in found)))
    return lines


def _cores(page: Array) -> Array:
    """The probability of each pixel (h, w) of a reduced page to belong to the core of a line."""
    size = page.shape[1::-1]
    shrink = min(1.0, SIDE / max(size))
    width, height = (max(STEP, round(side * shrink / STEP) * STEP) for side in size)
    reduced = Image.fromarray(page).resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(reduced, dtype=np.float32)[:, :, ::-1] / 127.5 - 1  # blue, green, red
    session = _session(torch.get_num_threads())
    (found,) = session.run(None, {session.get_inputs()[0].name: np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])})
    probabilities: Array = found[0, 0]
    return probabilities


@cache
def _session(threads: int) -> Any:
    check_detector()
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.enable_cpu_mem_arena = False  # which would keep the memory of the largest page
    package = find_spec("rapidocr")
    assert package is not None
    assert package.submodule_search_locations is not None
    file = (
        Path(package.submodule_search_locations[0]) / FILE
    )  # nothing of rapidocr is imported: it sets up logging, and may download
    return InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _line_around(points: Array) -> tuple[Array, Array] | None:
    """Polygon (n, 2) and base line (m, 2) of the line with these pixels (x, y) of its core; None for a speck."""
    along, across = _axes(points)
    centre = points.mean(0)
    u, v = (points - centre) @ along, (points - centre) @ across
    columns = np.rint(u - u.min()).astype(int)
    counts = np.bincount(columns)
    middles = np.bincount(columns, v)[counts > 0] / counts[counts > 0]
    at = u.min() + np.flatnonzero(counts)
    course = _fit(at, middles, 1)
    height = np.ptp(v - course(u)) + 1
    if np.abs(course(at) - middles).max() > BENT * (1 + GROWTH) * height and len(at) > 4 * height:
        course = _fit(at, middles, 3)
    offset = v - course(u)
    top, bottom, left, right = offset.min() - 0.5, offset.max() + 0.5, u.min() - 0.5, u.max() + 0.5
    if bottom - top < LEAST_CORE:
        return None
    grown = (right - left) * (bottom - top) * GROWTH / (2 * (right - left + bottom - top))
    height = bottom - top + 2 * grown
    top, bottom = top - grown, bottom + grown
    left, right = left - grown - END_MARGIN * height, right + grown + END_MARGIN * height
    xs = np.linspace(left, right, 2 if course.degree() == 1 else SIDES + 1)
    ys = course(np.clip(xs, at[0], at[-1])) if course.degree() > 1 else course(xs)

    def on_page(offset: float) -> Array:
        placed: Array = centre + xs[:, None] * along + (ys + offset)[:, None] * across
        return placed

    return np.concatenate([on_page(top), on_page(bottom)[::-1]]), on_page(bottom - BASE * (bottom - top))


def _axes(points: Array) -> tuple[Array, Array]:
    """The directions along and across a core: its principal axes, the first from left to right or upwards; those of the page for one that is not elongated."""
    moments, axes = np.linalg.eigh(np.cov(points.T) + np.eye(2) / 12)
    along = axes[:, 1] if moments[1] > ELONGATED**2 * moments[0] else np.array([1.0, 0.0])
    if (along[0] if abs(along[0]) >= abs(along[1]) else -along[1]) < 0:
        along = -along
    return along, np.array([-along[1], along[0]])


def _fit(x: Array, y: Array, degree: int) -> Polynomial:
    fitted: Polynomial = Polynomial.fit(x, y, degree).convert()
    return fitted if fitted.degree() == degree else Polynomial([*fitted.coef, *[0.0] * (degree - fitted.degree())])


def _scaled(points: Array, scale: Array) -> Points:
    """From the centres of pixels of the reduced page to those of the page, in whole pixels, which rotate without rounding errors."""
    return tuple(map(tuple, np.rint((points + 0.5) * scale - 0.5).tolist()))
