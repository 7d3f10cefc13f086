"""What segment.py writes of a picture: a label image, an overlay, a table, and polygons for QuPath; each whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from gcsa._utils.atomic import replacing
from gcsa.images.windows import WindowedImage, strips
from gcsa.tasks.segmentation.stars import Labels
from gcsa.tasks.segmentation.tiles import Segmented

ENDINGS = {
    "labels": ("_labels.png", "_labels.tif"),
    "overlay": ("_overlay.png",),
    "csv": ("_objects.csv", "_classes.csv"),
    "geojson": (".geojson",),
}
"""How the names of files of each kind can end."""
KINDS = tuple(ENDINGS)
MOST_16_BITS = 65_535
LONGEST_OVERLAY = 4096
"""Pixels of the longer side of an overlay, which shows every k-th pixel of a larger picture."""
BORDER = (255, 230, 0)


def write(
    result: Segmented, source: WindowedImage, scale: tuple[float, float], stem: Path, kinds: Sequence[str] = KINDS
) -> list[Path]:
    """Writes `kinds` of a picture's result into files that begin as `stem`, and returns them.

    STEM_labels.png has 16 bits, or is a .tif of 32 bits where there are more than 65,535 objects; STEM_overlay.png shows borders
    on the picture, of which `scale` become black and white; STEM_objects.csv has a line an object, or STEM_classes.csv one a
    class; STEM.geojson has a polygon an object, of instances only. Raises as `gcsa._utils.atomic.replacing`.
    """
    written = []
    if "labels" in kinds:
        written.append(_labels(result.labels, stem))
    if "overlay" in kinds:
        with replacing(_named(stem, "_overlay.png")) as part:
            Image.fromarray(overlay(result.labels, source, scale)).save(part, format="PNG")
        written.append(_named(stem, "_overlay.png"))
    if "csv" in kinds:
        name, rows = (
            ("_classes.csv", class_rows(result.labels, result.num_classes))
            if result.num_classes is not None
            else ("_objects.csv", object_rows(result))
        )
        with replacing(_named(stem, name)) as part, part.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        written.append(_named(stem, name))
    if "geojson" in kinds and result.objects is not None:
        with replacing(_named(stem, ".geojson")) as part, part.open("w", encoding="utf-8") as file:
            _geojson(result, file)
        written.append(_named(stem, ".geojson"))
    return written


def _named(stem: Path, ending: str) -> Path:
    return stem.with_name(stem.name + ending)


def _labels(labels: Labels, stem: Path) -> Path:
    png, tif = (_named(stem, ending) for ending in ENDINGS["labels"])
    if labels.max(initial=0) <= MOST_16_BITS:
        with replacing(png) as part:
            Image.fromarray(labels.astype(np.uint16)).save(part, format="PNG")
        tif.unlink(missing_ok=True)  # of an earlier result, which nobody should take for this one's
        return png
    with replacing(tif) as part:
        tifffile.imwrite(part, labels.astype(np.uint32), compression="zlib")
    png.unlink(missing_ok=True)
    return tif


def overlay(labels: Labels, source: WindowedImage, scale: tuple[float, float]) -> NDArray[np.uint8]:
    """The picture (h, w, 3) with the inner borders of its objects or classes; every k-th pixel of a large one."""
    from skimage.segmentation import find_boundaries

    height, width = source.shape
    step = -(-max(height, width) // LONGEST_OVERLAY)
    small = np.ascontiguousarray(labels[::step, ::step])
    low, high = scale
    picture: NDArray[np.uint8] = np.empty((*small.shape, 3), np.uint8)
    for top, bottom in strips(height, step):
        rows = source.window(top, 0, bottom, width)[::step, ::step].astype(np.float32)
        picture[top // step : -(-bottom // step)] = 255 * ((rows - low) / ((high - low) or 1)).clip(0, 1)
    picture[find_boundaries(small, mode="inner")] = BORDER
    return picture


def object_rows(result: Segmented) -> list[list[Any]]:
    """A header, and of each object its number, centre (row, column), area, score and box; the last row and column lie outside."""
    from skimage.measure import regionprops_table

    rows: list[list[Any]] = [["label", "row", "column", "area", "score", "top", "left", "bottom", "right"]]
    if result.objects is None or not len(result.objects):
        return rows
    table = regionprops_table(result.labels, properties=("label", "centroid", "area", "bbox"))
    columns = [table[key] for key in ("label", "centroid-0", "centroid-1", "area")]
    boxes = [table[f"bbox-{i}"] for i in range(4)]
    for label, row, column, area, *box in zip(*columns, *boxes, strict=True):
        score = result.objects.scores[label - 1]
        rows.append(
            [
                int(label),
                round(float(row), 2),
                round(float(column), 2),
                int(area),
                round(float(score), 4),
                *map(int, box),
            ]
        )
    return rows


def class_rows(labels: Labels, num_classes: int) -> list[list[Any]]:
    """A header, and of each class its number, pixels and share."""
    counts = np.zeros(num_classes, np.int64)
    for top, bottom in strips(len(labels), 1):
        counts += np.bincount(labels[top:bottom].ravel(), minlength=num_classes)
    rows: list[list[Any]] = [["class", "pixels", "share"]]
    return rows + [[number, int(count), round(float(count / labels.size), 6)] for number, count in enumerate(counts)]


def features(result: Segmented) -> Iterator[dict[str, Any]]:
    """The objects in GeoJSON as QuPath opens them: detections with closed polygons, x to the right and y downwards in pixels, whose
    whole numbers are the pixels' corners. What reaches beyond the picture is cut off at its border."""
    if result.objects is None:
        return
    for number, (outline, score) in enumerate(zip(result.objects.outlines(), result.objects.scores, strict=True), 1):
        ring = [[round(float(x), 3), round(float(y), 3)] for y, x in inside(outline + 0.5, result.labels.shape)]
        yield {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
            "properties": {
                "objectType": "detection",
                "name": str(number),
                "measurements": {"score": round(float(score), 4)},
            },
        }


def inside(corners: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The part (m, 2) from 0 to `shape` of a polygon (n, 2), which is star-convex about a point in there, and so is the part: all
    in one piece. One border after the other cuts it (Sutherland and Hodgman 1974)."""
    for axis, side in enumerate(shape):
        for sign, border in ((1, 0), (-1, side)):
            depths = sign * (corners[:, axis] - border)
            if (depths >= 0).all():
                continue
            kept = []
            for i, depth in enumerate(depths):
                if (depth < 0) != (depths[i - 1] < 0):
                    share = depth / (depth - depths[i - 1])
                    kept.append(corners[i] + share * (corners[i - 1] - corners[i]))
                if depth >= 0:
                    kept.append(corners[i])
            corners = np.stack(kept)
    return corners.clip(0, shape)


def _geojson(result: Segmented, file: TextIO) -> None:
    """Writes a feature a line: all objects of a large picture as one text would take a multiple of its label map."""
    file.write('{"type": "FeatureCollection", "features": [')
    for i, feature in enumerate(features(result)):
        file.write(f"{',' if i else ''}\n{json.dumps(feature)}")
    file.write("\n]}\n")
