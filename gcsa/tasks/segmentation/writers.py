"""The files of segment.py: label image, overlay, table, and polygons for QuPath. A file appears whole or not at all."""

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
from gcsa.tasks.segmentation.predict import Segmentation
from gcsa.tasks.segmentation.stars import Labels

ENDINGS = {
    "labels": ("_labels.png", "_labels.tif"),
    "overlay": ("_overlay.png",),
    "csv": ("_objects.csv", "_classes.csv"),
    "geojson": (".geojson",),
}
"""The endings of file names, by kind."""
KINDS = tuple(ENDINGS)
MAX_16_BITS = 65_535
MAX_OVERLAY_SIDE = 4096
"""Longest side of an overlay in pixels; of a larger image it shows every k-th pixel."""
BORDER = (255, 230, 0)


def write(
    result: Segmentation, image: WindowedImage, limits: tuple[float, float], stem: Path, kinds: Sequence[str] = KINDS
) -> list[Path]:
    """Writes files of an image's result whose names begin with `stem`, and returns them.

    | kind | file | content |
    | --- | --- | --- |
    | labels | STEM_labels.png, or .tif | 16 bits; 32 bits in a .tif above 65,535 objects |
    | overlay | STEM_overlay.png | borders on the image, in which `limits` are black and white |
    | csv | STEM_objects.csv, or STEM_classes.csv | a line for each object or class |
    | geojson | STEM.geojson | a polygon for each object; for instances only |

    Raises as `gcsa._utils.atomic.replacing`.
    """
    written = []
    if "labels" in kinds:
        written.append(_labels(result.labels, stem))
    if "overlay" in kinds:
        with replacing(_named(stem, "_overlay.png")) as part:
            Image.fromarray(overlay(result.labels, image, limits)).save(part, format="PNG")
        written.append(_named(stem, "_overlay.png"))
    if "csv" in kinds:
        name, rows = (
            ("_classes.csv", class_rows(result.labels, result.num_classes))
            if result.objects is None
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
    if labels.max(initial=0) <= MAX_16_BITS:
        with replacing(png) as part:
            Image.fromarray(labels.astype(np.uint16)).save(part, format="PNG")
        tif.unlink(missing_ok=True)  # of an earlier result, which nobody should take for this one's
        return png
    with replacing(tif) as part:
        tifffile.imwrite(part, labels.astype(np.uint32), compression="zlib")
    png.unlink(missing_ok=True)
    return tif


def overlay(labels: Labels, image: WindowedImage, limits: tuple[float, float]) -> NDArray[np.uint8]:
    """The image (h, w, 3) with the inner borders of its objects or classes; every k-th pixel of a large one."""
    from skimage.segmentation import find_boundaries

    height, width = image.shape
    step = -(-max(height, width) // MAX_OVERLAY_SIDE)
    small = np.ascontiguousarray(labels[::step, ::step])
    low, high = limits
    picture: NDArray[np.uint8] = np.empty((*small.shape, 3), np.uint8)
    for top, bottom in strips(height, step):
        rows = image.window(top, 0, bottom, width)[::step, ::step].astype(np.float32)
        picture[top // step : -(-bottom // step)] = 255 * ((rows - low) / ((high - low) or 1)).clip(0, 1)
    picture[find_boundaries(small, mode="inner")] = BORDER
    return picture


def object_rows(result: Segmentation) -> list[list[Any]]:
    """A header, and for each object its number, centre (row, column), area, score and box (`bottom` and `right` exclusive)."""
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
    """A header, and for each class its number, pixels and share."""
    counts = np.zeros(num_classes, np.int64)
    for top, bottom in strips(len(labels), 1):
        counts += np.bincount(labels[top:bottom].ravel(), minlength=num_classes)
    rows: list[list[Any]] = [["class", "pixels", "share"]]
    return rows + [[number, int(count), round(float(count / labels.size), 6)] for number, count in enumerate(counts)]


def features(result: Segmentation) -> Iterator[dict[str, Any]]:
    """The objects as QuPath opens them in GeoJSON: detections with closed polygons, clipped at the border of the image.

    Coordinates are x to the right and y downwards in pixels; whole numbers are the corners of pixels.
    """
    import shapely

    if result.objects is None:
        return
    height, width = result.labels.shape
    outlines = shapely.polygons(result.objects.outlines()[:, :, ::-1] + 0.5)
    # The part of a star-convex polygon within a rectangle that holds its centre is in one piece.
    for number, (polygon, score) in enumerate(
        zip(shapely.clip_by_rect(outlines, 0, 0, width, height), result.objects.scores, strict=True), 1
    ):
        yield {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [shapely.get_coordinates(polygon).round(3).tolist()]},
            "properties": {
                "objectType": "detection",
                "name": str(number),
                "measurements": {"score": round(float(score), 4)},
            },
        }


def _geojson(result: Segmentation, file: TextIO) -> None:
    """Writes a feature a line: all objects of a large picture as one text would take a multiple of its label map."""
    file.write('{"type": "FeatureCollection", "features": [')
    for i, feature in enumerate(features(result)):
        file.write(f"{',' if i else ''}\n{json.dumps(feature)}")
    file.write("\n]}\n")
