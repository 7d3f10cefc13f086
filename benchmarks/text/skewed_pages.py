"""How lines are read that are not flat: `python -m benchmarks.text.skewed_pages gcsa_ocr_tiny.print`.

The page of French print of `benchmarks.text.pages`, rotated by small angles, and as a photograph: a homography, and a curl of the
sheet. Its lines are given, as an XML file of the rotated page has them, or they are searched. Those that are given are the lines
found on the upright page, moved with its pixels. Each is read as it is cut, and as a box of the page (`FLAT` without bound).
`FLAT` was chosen on validation lines of other prints, put on pages one below the other: all straightened, and all as boxes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import map_coordinates

import gcsa
from gcsa._utils.arrays import Array
from gcsa._utils.atomic import write_json
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.data import cutting
from gcsa.tasks.recognition.data.cutting import FoundLine
from gcsa.tasks.recognition.data.line_image import Line, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.pages.inputs import Source
from gcsa.tasks.recognition.pages.layout import PageFinder
from gcsa.tasks.recognition.pages.reading_order import reading_order
from gcsa.tasks.recognition.predict import RecognitionPredictor
from gcsa.tasks.recognition.reading import Reading
from gcsa.training.results import git_commit, machine

ROOT = Path(__file__).parents[2]
ANGLES = (0, 3, 7)
SMALL_ANGLES = (0.5, 1, 2, 7)
"""Degrees counter-clockwise."""
SCRIPT, LINES, ON_PAGE = "fr17_18_gallicorpora", 60, 20
"""Validation lines, evenly spaced, and how many of them a page holds."""
GAP, MARGIN, BASELINE = 20, 40, 0.75
"""Pixels between these lines and beside them, and where their base lines are supposed, as a share of their height."""
CORNERS = ((0.04, 0.02), (0.95, 0.09), (1.0, 0.94), (0.0, 0.99))
"""Of the page on the photograph, as shares of its width and height: top left, top right, bottom right, bottom left."""
CURL = 0.02
"""The height of the arc in which lines run, as a share of the width of the page."""
TABLE = (40, 35, 30)
"""The colour around the page on the photograph."""

Move = Callable[[Array], Array]
"""Moves points x, y (n, 2) of the page with its pixels."""


def rotated(page: Image.Image, degrees: float) -> tuple[Image.Image, Move]:
    """A page rotated counter-clockwise on a ground of the colour of its paper."""
    if degrees == 0:
        return page, lambda points: points
    paper = tuple(np.median(np.asarray(page), (0, 1)).astype(int).tolist())
    scan = page.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)
    radians = np.radians(degrees)
    rotation = np.array([[np.cos(radians), np.sin(radians)], [-np.sin(radians), np.cos(radians)]])
    centre, new_centre = (np.array(page.size) - 1) / 2, (np.array(scan.size) - 1) / 2
    return scan, lambda points: (points - centre) @ rotation.T + new_centre


def photographed(page: Image.Image) -> tuple[Image.Image, Move]:
    """A page with a curl, seen in perspective on a dark table."""
    size = np.array(page.size)
    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) * (size - 1)
    homography = _homography(corners, np.array(CORNERS) * (size - 1))

    def arc(x: Array) -> Array:
        heights: Array = CURL * page.width * np.sin(np.pi * np.clip(x / page.width, 0, 1))
        return heights

    def move(points: Array) -> Array:
        return _project(homography, np.stack([points[:, 0], points[:, 1] - arc(points[:, 0])], 1))

    ys, xs = np.mgrid[: page.height, : page.width]
    source = _project(np.linalg.inv(homography), np.stack([xs.ravel(), ys.ravel()], 1).astype(float))
    x, y = source[:, 0], source[:, 1] + arc(source[:, 0])
    pixels = np.asarray(page)
    planes = [
        map_coordinates(pixels[..., i], [y, x], order=3, mode="constant", cval=ground) for i, ground in enumerate(TABLE)
    ]
    return Image.fromarray(np.stack(planes, 1).reshape(pixels.shape)), move


def _homography(points: Array, images: Array) -> Array:
    """The matrix (3, 3) that takes four points to their images (4, 2)."""
    rows, right = [], []
    for (x, y), (u, v) in zip(points, images, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(np.linalg.solve(np.array(rows), np.array(right)), 1).reshape(3, 3)


def _project(homography: Array, points: Array) -> Array:
    moved = np.c_[points, np.ones(len(points))] @ homography.T
    projected: Array = moved[:, :2] / moved[:, 2:]
    return projected


@contextmanager
def flat(threshold: float) -> Iterator[None]:
    """Cuts lines with another `FLAT`: np.inf, every line as a box of the page; -1, every line straightened."""
    flat, cutting.FLAT = cutting.FLAT, threshold
    try:
        yield
    finally:
        cutting.FLAT = flat


def given_lines(
    predictor: RecognitionPredictor, lines: list[Line], scan: Path, move: Move, truth: str
) -> dict[str, float]:
    """Errors on `scan`, to which `move` brings the lines of the upright page: cut as boxes, and as they are cut."""

    def moved(points: Any) -> Any:
        return tuple(map(tuple, np.rint(move(_dense(np.array(points, float)))).tolist()))

    on_scan = [line._replace(image=scan, polygon=moved(line.polygon), baseline=moved(line.baseline)) for line in lines]
    found = {"straightened": _error(predictor, on_scan, truth)}
    with flat(np.inf):
        found["boxes"] = _error(predictor, on_scan, truth)
    return found


def _dense(points: Array) -> Array:
    """Points of a polygon or base line with one in the middle of each side, so that they follow a curl."""
    middles = (points[:-1] + points[1:]) / 2
    return np.concatenate([np.stack([points[:-1], middles], 1).reshape(-1, 2), points[-1:]])


def _error(predictor: RecognitionPredictor, lines: list[Line], truth: str) -> float:
    return text_scores(["\n".join(_texts(predictor, lines))], [truth]).cer


def _texts(predictor: RecognitionPredictor, lines: list[Line]) -> list[str]:
    """Of lines of one page, or of several that are read upright."""
    inks = [partial(read_line, line, predictor.network.height) for line in lines]
    readings = predictor.read_lines(inks, [0] * len(inks), "upright")
    return [reading.text if isinstance(reading, Reading) else "" for reading in readings]


def validation_lines(predictor: RecognitionPredictor, folder: Path) -> dict[str, dict[str, float]]:
    """Errors of validation lines on pages that are rotated by `SMALL_ANGLES`, as boxes and straightened, and the median of the heights
    by which they rise."""
    listed = list_lines(data_root(None) / "ocr_lines" / SCRIPT, ("val",))
    listed = [listed[i] for i in np.linspace(0, len(listed) - 1, LINES).astype(int)]
    pages = [_stacked(listed[start : start + ON_PAGE]) for start in range(0, LINES, ON_PAGE)]
    aspects = [(x1 - x0) / (y1 - y0) for _, boxes in pages for x0, y0, x1, y1 in boxes]
    found = {}
    for degrees in SMALL_ANGLES:
        lines = []
        for number, (page, boxes) in enumerate(pages):
            scan, move = rotated(page, degrees)
            file = folder / f"stacked_{number}_{degrees}.png"
            scan.save(file)
            lines += [_line(file, box, move) for box in boxes]
        row = {"rise": float(np.median(aspects) * np.tan(np.radians(degrees)))}
        for name, threshold in (("boxes", np.inf), ("straightened", -1.0)):
            with flat(threshold):
                texts = _texts(predictor, lines)
            row[name] = text_scores(texts, [line.text for line in listed]).cer
        found[str(degrees)] = row
    return found


Box = tuple[int, int, int, int]


def _stacked(lines: list[Line]) -> tuple[Image.Image, list[Box]]:
    """A page of lines one below the other, and their boxes (left, top, right, bottom)."""
    images = [Image.open(line.image).convert("RGB") for line in lines]
    paper = int(np.median([np.percentile(np.asarray(image), 90) for image in images]))
    width, height = max(image.width for image in images), sum(image.height + GAP for image in images)
    page, boxes, top = Image.new("RGB", (width + 2 * MARGIN, height + MARGIN), (paper,) * 3), [], GAP
    for image in images:
        page.paste(image, (MARGIN, top))
        boxes.append((MARGIN, top, MARGIN + image.width - 1, top + image.height - 1))
        top += image.height + GAP
    return page, boxes


def _line(file: Path, box: Box, move: Move) -> Line:
    left, top, right, bottom = box
    middle = top + BASELINE * (bottom - top)
    outline = move(np.array([(left, top), (right, top), (right, bottom), (left, bottom)], float))
    baseline = move(np.array([(left, middle), (right, middle)], float))
    return Line(file, polygon=tuple(map(tuple, outline.tolist())), baseline=tuple(map(tuple, baseline.tolist())))


def found_lines(predictor: RecognitionPredictor, scan: Path, truth: str) -> dict[str, Any]:
    """Errors on `scan`, which is not upside down, and on which the lines are searched."""
    read = predictor.predict(scan, orientation="upright")
    return {"lines": len(read), "cer": text_scores(["\n".join(reading.text for reading in read)], [truth]).cer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights")
    args = parser.parse_args()
    torch.set_num_threads(1)
    commit, predictor = git_commit(), gcsa.load(args.weights).fold()
    truth = (ROOT / "tests/tasks/recognition/fr_print_page.txt").read_text(encoding="utf-8").strip()
    page = Image.open(data_root(None) / "pages/fr_print_page.jpg").convert("RGB")
    made = {str(degrees): rotated(page, degrees) for degrees in ANGLES} | {"photograph": photographed(page)}
    given, found = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        validation = validation_lines(predictor, Path(folder))
        scans = {name: Path(folder) / f"{name}.png" for name in made}
        for name, (scan, _) in made.items():
            scan.save(scans[name])
        lines = PageFinder(upright=True)(Source(scans["0"]))
        places = [FoundLine(line.polygon or (), line.baseline or ()) for line in lines]
        lines = [lines[i] for block in reading_order(places) for i in block]
        for name, (_, move) in made.items():
            if name != "photograph":
                given[name] = given_lines(predictor, lines, scans[name], move, truth)
            found[name] = found_lines(predictor, scans[name], truth)
    result = {"weights": args.weights, "validation": {"script": SCRIPT, "lines": LINES, "angles": validation}}
    result |= {"given": given, "found": found, "photograph": {"corners": CORNERS, "curl": CURL}}
    print(write_json(ROOT / "benchmarks/results/pages/skewed.json", {**result, "commit": commit, "machine": machine()}))


if __name__ == "__main__":
    main()
