"""What segment.py writes of a picture: a label image, an overlay, a table, and polygons for QuPath; each whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from gcsa.dense.source import Source, strips
from gcsa.dense.stars import Labels
from gcsa.dense.tiles import Segmented
from gcsa.files import replacing

KINDS = ("labels", "overlay", "csv", "geojson")
MOST_16_BITS = 65_535
LONGEST_OVERLAY = 4096
"""Pixels of the longer side of an overlay, which shows every k-th pixel of a larger picture."""
BORDER = (255, 230, 0)


def write(
    result: Segmented, source: Source, scale: tuple[float, float], stem: Path, kinds: Sequence[str] = KINDS
) -> list[Path]:
    """Writes `kinds` of a picture's result into files that begin as `stem`, and returns them.

    STEM_labels.png has 16 bits, or is a .tif of 32 bits where there are more than 65,535 objects; STEM_overlay.png shows borders
    on the picture, of which `scale` become black and white; STEM_objects.csv has a line an object, or STEM_classes.csv one a
    class; STEM.geojson has a polygon an object, of instances only. Raises as `gcsa.files.replacing`.
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
            ("_classes.csv", class_rows(result.labels))
            if result.objects is None
            else ("_objects.csv", object_rows(result))
        )
        with replacing(_named(stem, name)) as part, part.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        written.append(_named(stem, name))
    if "geojson" in kinds and result.objects is not None:
        with replacing(_named(stem, ".geojson")) as part:
            part.write_text(json.dumps(geojson(result)) + "\n", encoding="utf-8")
        written.append(_named(stem, ".geojson"))
    return written


def _named(stem: Path, ending: str) -> Path:
    return stem.with_name(stem.name + ending)


def _labels(labels: Labels, stem: Path) -> Path:
    if labels.max(initial=0) <= MOST_16_BITS:
        with replacing(_named(stem, "_labels.png")) as part:
            Image.fromarray(labels.astype(np.uint16)).save(part, format="PNG")
        return _named(stem, "_labels.png")
    with replacing(_named(stem, "_labels.tif")) as part:
        tifffile.imwrite(part, labels.astype(np.uint32), compression="zlib")
    return _named(stem, "_labels.tif")


def overlay(labels: Labels, source: Source, scale: tuple[float, float]) -> NDArray[np.uint8]:
    """The picture (h, w, 3) with the inner borders of its objects or classes; every k-th pixel of a large one."""
    from skimage.segmentation import find_boundaries

    height, width = source.shape
    step = -(-max(height, width) // LONGEST_OVERLAY)
    small = np.ascontiguousarray(labels[::step, ::step])
    rows = [source.window(top, 0, bottom, width)[::step, ::step] for top, bottom in strips(height, step)]
    low, high = scale
    shown = (np.concatenate(rows).astype(np.float32) - low) / ((high - low) or 1)
    picture: NDArray[np.uint8] = (255 * shown.clip(0, 1)).astype(np.uint8)
    if picture.shape[2] == 1:
        picture = np.repeat(picture, 3, axis=2)
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


def class_rows(labels: Labels) -> list[list[Any]]:
    """A header, and of each class its number, pixels and share."""
    counts = np.bincount(labels.ravel())
    rows: list[list[Any]] = [["class", "pixels", "share"]]
    return rows + [[number, int(count), round(float(count / labels.size), 6)] for number, count in enumerate(counts)]


def geojson(result: Segmented) -> dict[str, Any]:
    """The objects as QuPath opens them: detections with closed polygons, x to the right and y downwards in pixels, whose whole
    numbers are the pixels' corners. What reaches beyond the picture ends at its border."""
    features = []
    height, width = result.labels.shape
    if result.objects is not None:
        for number, outline in enumerate(result.objects.outlines(), 1):
            corners = (
                np.stack([outline[:, 1].clip(-0.5, width - 0.5), outline[:, 0].clip(-0.5, height - 0.5)], -1) + 0.5
            )
            ring = [[round(float(x), 2), round(float(y), 2)] for x, y in corners]
            features.append(
                {
                    "type": "Feature",
                    "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
                    "properties": {
                        "objectType": "detection",
                        "name": str(number),
                        "measurements": {"score": round(float(result.objects.scores[number - 1]), 4)},
                    },
                }
            )
    return {"type": "FeatureCollection", "features": features}
