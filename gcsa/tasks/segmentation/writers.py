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

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError
from gcsa.images.planes import COLOURS
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
PROPERTIES = {
    "area_convex": 2,
    "area_filled": 2,
    "axis_major_length": 1,
    "axis_minor_length": 1,
    "eccentricity": 0,
    "equivalent_diameter_area": 1,
    "euler_number": 0,
    "extent": 0,
    "feret_diameter_max": 1,
    "intensity_max": 0,
    "intensity_mean": 0,
    "intensity_min": 0,
    "intensity_std": 0,
    "orientation": 0,
    "perimeter": 1,
    "perimeter_crofton": 1,
    "solidity": 0,
}
"""Of objects, by the names of `skimage.measure.regionprops`: the power of a length that each is."""
UNITS = ("", "_um", "_um2")
"""What stands behind the names of columns in micrometres, by that power."""


def write(
    result: Segmentation,
    image: WindowedImage,
    limits: tuple[float, float],
    stem: Path,
    kinds: Sequence[str] = KINDS,
    *,
    properties: Sequence[str] = (),
    pixel_size: tuple[float, float] | None = None,
) -> list[Path]:
    """Writes files of an image's result whose names begin with `stem`, and returns them.

    | kind | file | content |
    | --- | --- | --- |
    | labels | STEM_labels.png, or .tif | 16 bits; 32 bits in a .tif above 65,535 objects |
    | overlay | STEM_overlay.png | borders on the image, in which `limits` are black and white |
    | csv | STEM_objects.csv, or STEM_classes.csv | a line for each object or class |
    | geojson | STEM.geojson | a polygon for each object; for instances only |

    properties, pixel_size: as in `object_rows`. Raises as `gcsa._utils.atomic.replacing`.
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
            else ("_objects.csv", object_rows(result, image, properties, pixel_size))
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


def object_rows(
    result: Segmentation,
    image: WindowedImage,
    properties: Sequence[str] = (),
    pixel_size: tuple[float, float] | None = None,
) -> list[list[Any]]:
    """A header, and for each object its number, centre (row, column), area, score and box (`bottom` and `right` exclusive), in pixels.

    With `pixel_size`, height and width of a pixel in micrometres, centre and area in micrometres follow. `properties` are some of
    `PROPERTIES`, in pixels or, with `pixel_size`, in micrometres (then `UNITS` end the names); intensities of a picture in colour
    are three columns each. For intensities the picture is held in memory as a whole. `check_properties` says which have no value.
    """
    from skimage.measure import regionprops_table

    header: list[Any] = ["label", "row", "column", "area", "score", "top", "left", "bottom", "right"]
    columns: list[list[Any]] = []
    table = regionprops_table(result.labels, properties=("label", "centroid", "area", "bbox"))
    scores = () if result.objects is None else result.objects.scores
    rows, places, areas = (table[key] for key in ("centroid-0", "centroid-1", "area"))
    columns += [[int(label) for label in table["label"]]]
    columns += [[round(float(value), 2) for value in values] for values in (rows, places)]
    columns += [[int(area) for area in areas], [round(float(scores[label - 1]), 4) for label in table["label"]]]
    columns += [[int(side) for side in table[f"bbox-{i}"]] for i in range(4)]
    if pixel_size is not None:
        height, width = pixel_size
        header += ["row_um", "column_um", "area_um2"]
        columns += [_rounded(values) for values in (rows * height, places * width, areas * height * width)]
    for name, values in _measured(result.labels, image, properties, pixel_size).items():
        header.append(name)
        columns.append(_rounded(values))
    return [header, *map(list, zip(*columns, strict=True))]


def is_square(height: float, width: float) -> bool:
    """Whether the sides of a pixel are equal, up to a thousandth."""
    return abs(height - width) <= 1e-3 * height


def check_properties(properties: Sequence[str], pixel_size: tuple[float, float] | None) -> None:
    """Raises UserError for a property that pixels of this size do not have, as regionprops has no perimeter of oblong ones."""
    names = [name for name in properties if name.startswith("perimeter")]
    if names and pixel_size is not None and not is_square(*pixel_size):
        height, width = pixel_size
        raise UserError(
            f"pixels are {height:g} x {width:g} micrometres, not square, and have no {names[0]}: leave it out"
        )


def _measured(
    labels: Labels, image: WindowedImage, properties: Sequence[str], pixel_size: tuple[float, float] | None
) -> dict[str, Array]:
    """The columns of `properties`, by their names."""
    from skimage.measure import regionprops_table

    if not properties:
        return {}
    height, width = pixel_size or (1.0, 1.0)
    if is_square(height, width):
        width = height
    picture = None
    if any(name.startswith("intensity") for name in properties):
        picture = image.window(0, 0, *image.shape)
        if (picture == picture[..., :1]).all():
            picture = picture[..., 0]
    table = regionprops_table(labels, picture, properties=tuple(properties), spacing=(height, width))
    names = {}
    for key in table:
        name, _, channel = key.partition("-")
        unit = UNITS[PROPERTIES[name]] if pixel_size else ""
        names[key] = f"{name}{unit}_{COLOURS[int(channel)]}" if channel else f"{name}{unit}"
    return {names[key]: values for key, values in table.items()}


def _rounded(values: Array) -> list[float]:
    """To six digits."""
    return [float(f"{value:.6g}") for value in values]


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
