"""The files of gcsa segment: label image, overlay, table, and polygons for QuPath. A file appears whole or not at all."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
from gcsa.images.windows import ROWS, Windowed, WindowedImage, row_windows, strips
from gcsa.tasks.segmentation.choices import ENDINGS, KINDS, PROPERTIES
from gcsa.tasks.segmentation.predict import Segmentation
from gcsa.tasks.segmentation.stars import Labels, pixel_counts

MAX_16_BITS = 65_535
MAX_PNG = 64_000_000
"""Pixels up to which a label map is a PNG file, which is made in memory."""
TILE = 512
"""Side of the tiles of label maps in TIFF."""
AT_ONCE = 4096
"""Objects whose polygons are made at a time."""
MAX_OVERLAY_SIDE = 4096
"""Longest side of an overlay in pixels; of a larger image it shows every k-th pixel."""
BORDER = (255, 230, 0)
MEASURED = ("label", "row", "column", "area", "top", "left", "bottom", "right")
"""Of every object, in pixels."""
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
    | labels | STEM_labels.png, or .tif | 16 bits; a .tif of 32 bits in tiles above 65,535 objects or `MAX_PNG` pixels |
    | overlay | STEM_overlay.png | borders on the image, in which `limits` are black and white |
    | csv | STEM_objects.csv, or STEM_classes.csv | a line for each object or class |
    | geojson | STEM.geojson | a polygon for each object; for instances only |

    properties, pixel_size: as in `object_rows`. Raises as `gcsa._utils.atomic.replacing`.
    """
    written = []
    if "labels" in kinds:
        written.append(_labels(result, stem))
    if "overlay" in kinds:
        with replacing(_named(stem, "_overlay.png")) as part:
            Image.fromarray(overlay(result.label_map, image, limits)).save(part, format="PNG")
        written.append(_named(stem, "_overlay.png"))
    if "csv" in kinds:
        name, rows = (
            ("_classes.csv", class_rows(result))
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


def _labels(result: Segmentation, stem: Path) -> Path:
    png, tif = (_named(stem, ending) for ending in ENDINGS["labels"])
    label_map, shape = result.label_map, result.label_map.shape
    if result.max_label <= MAX_16_BITS and math.prod(shape) <= MAX_PNG:
        values = np.empty(shape, np.uint16)
        for top, labels in row_windows(label_map):
            values[top : top + len(labels)] = labels
        with replacing(png) as part:
            Image.fromarray(values).save(part, format="PNG")
        tif.unlink(missing_ok=True)  # of an earlier result, which nobody should take for this one's
        return png
    layout: dict[str, Any] = dict(shape=shape, dtype=np.uint32, tile=(TILE, TILE), bigtiff=4 * math.prod(shape) > 2**32)
    with replacing(tif) as part:
        # One worker, since more are handed all of a large buffer at once.
        tifffile.imwrite(part, _tiles(label_map), compression="zlib", maxworkers=1, **layout)
    png.unlink(missing_ok=True)
    return tif


def _tiles(label_map: Windowed) -> Iterator[NDArray[np.uint32]]:
    """Squares of `TILE` pixels of a label map, row by row; less at its lower and right border."""
    height, width = label_map.shape
    for top, bottom in strips(height, TILE):
        rows = label_map.window(top, 0, bottom, width).astype(np.uint32)
        for left in range(0, width, TILE):
            yield rows[:, left : left + TILE]


def overlay(label_map: Windowed, image: WindowedImage, limits: tuple[float, float]) -> NDArray[np.uint8]:
    """The image (h, w, 3) with the inner borders of its objects or classes; every k-th pixel of a large one."""
    from skimage.segmentation import find_boundaries

    height, width = image.shape
    step = -(-max(height, width) // MAX_OVERLAY_SIDE)
    labels: Labels = np.empty((-(-height // step), -(-width // step)), np.int32)
    low, high = limits
    picture: NDArray[np.uint8] = np.empty((*labels.shape, 3), np.uint8)
    for top, bottom in strips(height, step):
        part = slice(top // step, -(-bottom // step))
        rows = image.window(top, 0, bottom, width)[::step, ::step].astype(np.float32)
        picture[part] = 255 * ((rows - low) / ((high - low) or 1)).clip(0, 1)
        labels[part] = label_map.window(top, 0, bottom, width)[::step, ::step]
    picture[find_boundaries(labels, mode="inner")] = BORDER
    return picture


def object_rows(
    result: Segmentation,
    image: WindowedImage,
    properties: Sequence[str] = (),
    pixel_size: tuple[float, float] | None = None,
) -> Iterator[list[Any]]:
    """A header, and for each object its number, centre (row, column), area, score and box (`bottom` and `right` exclusive), in pixels
    from the corner of the picture that `result.origin` is in.

    With `pixel_size`, height and width of a pixel in micrometres, centre and area in micrometres follow. `properties` are some of
    `PROPERTIES`, in pixels or, with `pixel_size`, in micrometres (then `UNITS` end the names); intensities of a picture in colour
    are three columns each. `check_properties` says which have no value.
    """
    assert result.objects is not None
    table = _measured(result, image, properties, pixel_size)
    labels, rows, places, areas, top, left, bottom, right = (table.pop(key) for key in MEASURED)
    down, across = result.origin
    rows, top, bottom = rows + down, top + down, bottom + down
    places, left, right = places + across, left + across, right + across
    scores = result.objects.scores[labels - 1]
    columns: list[tuple[str, Array, Callable[[Any], Any]]] = [
        ("label", labels, int),
        ("row", rows, partial(_rounded, digits=2)),
        ("column", places, partial(_rounded, digits=2)),
        ("area", areas, int),
        ("score", scores, partial(_rounded, digits=4)),
        ("top", top, int),
        ("left", left, int),
        ("bottom", bottom, int),
        ("right", right, int),
    ]
    if pixel_size is not None:
        height, width = pixel_size
        columns += [("row_um", rows * height, _significant), ("column_um", places * width, _significant)]
        columns += [("area_um2", areas * height * width, _significant)]
    columns += [(name, values, _significant) for name, values in table.items()]
    if result.ood_score is not None:
        columns.append(("ood_score", np.full(len(labels), result.ood_score), _significant))
    yield [name for name, _, _ in columns]
    for values in zip(*(values for _, values, _ in columns), strict=True):
        yield [convert(value) for (_, _, convert), value in zip(columns, values, strict=True)]


def is_square(height: float, width: float) -> bool:
    """Whether the sides of a pixel are equal, up to a thousandth."""
    return abs(height - width) <= 1e-3 * height


def check_properties(properties: Sequence[str], pixel_size: tuple[float, float] | None) -> None:
    """Raises UserError for a property that pixels of this size do not have, as regionprops has no perimeter of oblong ones."""
    names = [name for name in properties if name.startswith("perimeter")]
    if names and pixel_size is not None and not is_square(*pixel_size):
        height, width = pixel_size
        raise UserError(
            f"pixels are {height:g} x {width:g} micrometres, not square, and have no {names[0]}: leave it out",
            "properties.not_square",
        )


def _measured(
    result: Segmentation, image: WindowedImage, properties: Sequence[str], pixel_size: tuple[float, float] | None
) -> dict[str, Array]:
    """`MEASURED` in pixels, and the columns of `properties` by their names, of all objects in the order of their numbers."""
    from skimage.measure import regionprops, regionprops_table

    height, width = pixel_size or (1.0, 1.0)
    if is_square(height, width):
        width = height
    with_picture = any(name.startswith("intensity") for name in properties)
    grey = with_picture and all((rows == rows[..., :1]).all() for _, rows in row_windows(image))
    parts = []
    for top, labels in _bands(result):
        regions = regionprops(labels, offset=(top, 0))  # which is not added to the box
        boxes = [(top + box[0], box[1], top + box[2], box[3]) for box in (region.bbox for region in regions)]
        values = [
            (region.label, *region.centroid, region.area, *box) for region, box in zip(regions, boxes, strict=True)
        ]
        columns = np.array(values, np.float64).reshape(-1, len(MEASURED)).T
        part = dict(zip(MEASURED, columns, strict=True))
        if properties:
            picture = image.window(top, 0, top + len(labels), image.shape[1]) if with_picture else None
            picture = picture[..., 0] if picture is not None and grey else picture
            part |= regionprops_table(labels, picture, properties=tuple(properties), spacing=(height, width))
        parts.append(part)
    table = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    table["label"] = table["label"].astype(np.int64)
    order = np.argsort(table["label"])
    return {_column(key, pixel_size is not None): values[order] for key, values in table.items()}


def _bands(result: Segmentation) -> Iterator[tuple[int, Labels]]:
    """Parts of the label map over its whole width, each with its first row. An object is whole in one of them, and in no other."""
    assert result.objects is not None
    height, width = result.label_map.shape
    rows = result.objects.points[:, 0].clip(0, height - 1)
    low, high = (corners[:, 0] for corners in result.objects.bounds())
    for top, bottom in strips(height, 1, ROWS):
        chosen = (rows >= top) & (rows < bottom)
        first = max(0, math.floor(low[chosen].min(initial=top)))
        last = min(height, math.ceil(high[chosen].max(initial=bottom)))
        labels = result.label_map.window(first, 0, last, width)
        yield first, np.where(np.append(False, chosen)[labels], labels, 0)


def _column(key: str, in_micrometres: bool) -> str:
    """The name of a column of `regionprops_table` in ours."""
    if key in MEASURED:
        return key
    name, _, channel = key.partition("-")
    unit = UNITS[PROPERTIES[name]] if in_micrometres else ""
    return f"{name}{unit}_{COLOURS[int(channel)]}" if channel else f"{name}{unit}"


def _rounded(value: Any, digits: int) -> float:
    return round(float(value), digits)


def _significant(value: Any) -> float:
    """To six digits."""
    return float(f"{value:.6g}")


def class_rows(result: Segmentation) -> list[list[Any]]:
    """A header, and for each class its number, pixels and share, and the OOD score of the image where there is one."""
    counts, size = pixel_counts(result.label_map, result.num_classes), math.prod(result.label_map.shape)
    names, beside = ([], []) if result.ood_score is None else (["ood_score"], [_significant(result.ood_score)])
    rows: list[list[Any]] = [["class", "pixels", "share", *names]]
    return rows + [[number, int(count), round(float(count / size), 6), *beside] for number, count in enumerate(counts)]


def features(result: Segmentation) -> Iterator[dict[str, Any]]:
    """The objects as QuPath opens them in GeoJSON: detections with closed polygons, clipped at the border of the image.

    Coordinates are x to the right and y downwards in pixels, from the corner of the picture that `result.origin` is in; whole numbers
    are the corners of pixels.
    """
    import shapely

    if result.objects is None:
        return
    height, width = result.label_map.shape
    parts = (result.objects[start : start + AT_ONCE] for start in range(0, len(result.objects), AT_ONCE))
    # The part of a star-convex polygon within a rectangle that holds its centre is in one piece.
    clipped = (
        (polygon, score)
        for part in parts
        for polygon, score in zip(
            shapely.clip_by_rect(shapely.polygons(part.outlines()[:, :, ::-1] + 0.5), 0, 0, width, height),
            part.scores,
            strict=True,
        )
    )
    for number, (polygon, score) in enumerate(clipped, 1):
        corners = shapely.get_coordinates(polygon) + np.array(result.origin[::-1])
        yield {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [corners.round(3).tolist()]},
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
