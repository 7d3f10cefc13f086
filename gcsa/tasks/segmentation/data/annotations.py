"""Objects that other programs outlined, as label maps: QuPath's GeoJSON, COCO JSON, and ROIs of ImageJ and Fiji.

In all of them a point is (x, y) from the upper left corner of the image, so that pixel (row, column) covers x from `column` to
`column + 1`. A pixel belongs to an object whose outline has the centre of the pixel inside (even-odd rule; on an upper or left border
it is inside). So outlines along the sides of pixels, as QuPath and ImageJ draw them around masks, give these masks back exactly.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gcsa._utils.arrays import Array
from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa._utils.paths import composed
from gcsa._utils.validation import is_int
from gcsa.images.reader import check_pair, check_sizes, image_size, read_labels
from gcsa.tasks.segmentation.stars import Labels

GEOJSON, COCO, ROIS = ".geojson", ".json", (".zip", ".roi")
OUTLINES = (GEOJSON, COCO, *ROIS)
"""Suffixes of files of outlines."""
MAX_BYTES = 2**29
"""Of a file of outlines, unpacked."""
MAX_CROSSINGS = 50_000_000
"""Of the outline of one object with rows of pixels."""
MOST_SHARED = 0.5
"""Share of the smaller of two objects that the other may cover."""


class Cover(NamedTuple):
    """The pixels of an object: `mask` (h, w), whose first pixel stands at row `top` and column `left` of the image."""

    name: str
    top: int
    left: int
    mask: Array


def is_outlines(path: Path) -> bool:
    """Whether a file holds outlines, not a label map."""
    return path.suffix.lower() in OUTLINES


def check_mask(mask: Path, image: Path) -> None:
    """Raises UserError where the mask of an image cannot be read or has another size; of label maps, only headers are read."""
    if is_outlines(mask):
        read_mask(mask, image, image_size(image, upright=True)[::-1])
    else:
        check_pair(image, mask)


def read_mask(mask: Path, image: Path, shape: tuple[int, int]) -> Labels:
    """The label map int32 (H, W) in the file `mask` of an image of `shape`. Outlined objects are numbered in the order of the file.

    Where two overlap, the first keeps the pixels, as `gcsa.tasks.segmentation.stars.draw` does.

    Raises:
        UserError: a file that cannot be read or has another size, an object that is no area, has no pixel in the image, or
            shares more than half of the smaller one with another.
        MissingExtraError: ROIs of ImageJ without the package roifile.
    """
    if not is_outlines(mask):
        labels = read_labels(mask)
        check_sizes(image, shape, mask, labels.shape)
        return labels
    suffix = mask.suffix.lower()
    if suffix == COCO:
        return draw_covers(coco_covers(mask, composed(image.stem), shape), shape, mask)
    return draw_covers(geojson_covers(mask, shape) if suffix == GEOJSON else roi_covers(mask, shape), shape, mask)


def draw_covers(covers: Iterable[Cover], shape: tuple[int, int], path: Path) -> Labels:
    """The label map of objects in the file `path`. Raises UserError as `read_mask`."""
    labels: Labels = np.zeros(shape, np.int32)
    names, areas = [""], [0]
    for number, (name, top, left, mask) in enumerate(covers, 1):
        if not mask.any():
            raise UserError(
                f"{path}: {name} covers no pixel of the image, which is {shape[0]} x {shape[1]}: remove it",
                "annotations.outside",
            )
        names.append(name)
        areas.append(int(mask.sum()))
        part = labels[top : top + mask.shape[0], left : left + mask.shape[1]]
        for other, shared in zip(*np.unique(part[mask], return_counts=True), strict=True):
            if other and shared > MOST_SHARED * min(areas[other], areas[number]):
                raise UserError(
                    f"{path}: {names[other]} and {name} overlap by more than half of the smaller: keep one",
                    "annotations.overlap",
                )
        part[mask & (part == 0)] = number
    hidden = np.setdiff1d(np.arange(len(names)), labels)
    if (hidden > 0).any():
        raise UserError(f"{path}: {names[hidden[-1]]} is covered by other objects: remove it", "annotations.hidden")
    return labels


def rasterize(name: str, polygons: Iterable[Sequence[Array]], shape: tuple[int, int]) -> Cover:
    """The pixels of an image of `shape` that lie in any of `polygons`: rings (n, 2) of (x, y), of which the inner ones are holes."""
    parts = [_filled(name, rings, shape) for rings in polygons]
    if len(parts) == 1:
        return parts[0]
    top, left = min((part.top for part in parts), default=0), min((part.left for part in parts), default=0)
    bottom = max((part.top + part.mask.shape[0] for part in parts), default=0)
    right = max((part.left + part.mask.shape[1] for part in parts), default=0)
    mask = np.zeros((bottom - top, right - left), bool)
    for part in parts:
        rows, columns = part.mask.shape
        mask[part.top - top :, part.left - left :][:rows, :columns] |= part.mask
    return Cover(name, top, left, mask)


def _filled(name: str, rings: Sequence[Array], shape: tuple[int, int]) -> Cover:
    """`rasterize` of one polygon: an edge changes, from its crossing with the centre line of a row on, what is inside."""
    (x, y), (x_end, y_end) = np.concatenate(rings).T, np.concatenate([np.roll(ring, -1, 0) for ring in rings]).T
    first, last = (
        np.ceil(side - 0.5).clip(0, shape[0]).astype(int) for side in (np.minimum(y, y_end), np.maximum(y, y_end))
    )
    counts = last - first
    if counts.sum() > MAX_CROSSINGS:
        raise UserError(f"the outline of {name} is too long: simplify it", "annotations.too_long")
    edges = np.repeat(np.arange(len(x)), counts)
    if not len(edges):
        return Cover(name, 0, 0, np.zeros((0, 0), bool))
    rows = first[edges] + np.arange(len(edges)) - np.repeat(counts.cumsum() - counts, counts)
    crossings = x[edges] + (rows + 0.5 - y[edges]) * (x_end - x)[edges] / (y_end - y)[edges]
    columns = np.ceil(crossings - 0.5).clip(0, shape[1]).astype(int)
    top, left = int(rows.min()), int(columns.min())
    changes = np.zeros((int(rows.max()) - top + 1, int(columns.max()) - left + 1), bool)
    places, crossed = np.unique((rows - top) * changes.shape[1] + columns - left, return_counts=True)
    changes.flat[places[crossed % 2 == 1]] = True
    return Cover(name, top, left, np.logical_xor.accumulate(changes, axis=1)[:, :-1])


def geojson_covers(path: Path, shape: tuple[int, int]) -> Iterator[Cover]:
    """The objects of GeoJSON as QuPath writes it: a FeatureCollection, a list of features or one feature."""
    content = _read_json(path)
    if isinstance(content, dict):
        content = content.get("features", [content])
    if not isinstance(content, list):
        raise UserError(f"{path} holds no features: export objects as GeoJSON", "geojson.empty")
    planes = set()
    for number, feature in enumerate(content, 1):
        name = f"object {number}"
        geometry = feature.get("geometry") if isinstance(feature, dict) else None
        geometry = geometry if isinstance(geometry, dict) else {}
        kind, coordinates = geometry.get("type"), geometry.get("coordinates")
        if kind not in ("Polygon", "MultiPolygon"):
            raise UserError(
                f"{path}: {name} is a {kind or 'thing without geometry'}, not a Polygon or MultiPolygon: remove it",
                "geojson.geometry",
            )
        plane = geometry.get("plane")  # of QuPath, where it is not the first of a stack
        plane = plane if isinstance(plane, dict) else {}
        planes.add(tuple(str(plane.get(axis, 0)) for axis in "zt"))
        if len(planes) > 1:
            raise UserError(
                f"{path} holds objects of several slices or frames of a stack: save those of each image by themselves",
                "geojson.planes",
            )
        polygons = coordinates if kind == "MultiPolygon" else [coordinates]
        if not isinstance(polygons, list) or not all(isinstance(rings, list) and rings for rings in polygons):
            raise UserError(f"{path}: the coordinates of {name} are no list of rings", "geojson.rings")
        yield rasterize(name, [[_ring(path, name, ring) for ring in rings] for rings in polygons], shape)


def _ring(path: Path, name: str, points: Any) -> Array:
    """Corners (n, 2) as numbers. Raises UserError for what is no ring of at least three points in the plane."""
    try:
        ring = np.asarray(points, np.float64)
    except (ValueError, TypeError):
        ring = np.empty(0)
    if ring.ndim != 2 or len(ring) < 3 or ring.shape[1] not in (2, 3) or not (abs(ring) < 1e9).all():
        raise UserError(f"{path}: the outline of {name} is not a list of at least three points x, y", "outline.points")
    return ring[:, :2]


def coco_names(path: Path) -> list[str]:
    """The names, without folder and suffix, of the images that a file of COCO lists; none of other JSON files."""
    return list(_coco(path, os.stat(path).st_mtime_ns))


def coco_covers(path: Path, name: str, shape: tuple[int, int]) -> Iterator[Cover]:
    """The objects that a file of COCO lists of the image called `name`: polygons, and run lengths, compressed or not."""
    image, annotations = _coco(path, os.stat(path).st_mtime_ns)[name]
    size = image.get("height") or shape[0], image.get("width") or shape[1]
    if size != shape:
        raise UserError(
            f"{path} says {size[0]} x {size[1]} pixels of the image {name}, which is {shape[0]} x {shape[1]}",
            "coco.size",
        )
    for annotation in annotations:
        label, segmentation = f"annotation {annotation.get('id')}", annotation.get("segmentation")
        if isinstance(segmentation, dict):
            yield Cover(label, 0, 0, _run_lengths(path, label, segmentation, shape))
            continue
        if not isinstance(segmentation, list) or not segmentation:
            raise UserError(f"{path}: {label} has no segmentation: remove it, or outline it", "coco.no_outline")
        rings = []
        for flat in segmentation:
            if not isinstance(flat, list) or len(flat) % 2:
                raise UserError(f"{path}: {label} has a polygon that is not a list x, y, x, y, ...", "coco.polygon")
            rings.append([_ring(path, label, [flat[i : i + 2] for i in range(0, len(flat), 2)])])
        yield rasterize(label, rings, shape)


@lru_cache(maxsize=4)
def _coco(path: Path, changed: int) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Of each image in a file of COCO: its entry and its annotations. `changed` is when the file was written."""
    content = _read_json(path)
    if not isinstance(content, dict) or not {"images", "annotations"} <= content.keys():
        return {}
    entries, annotations = content["images"], content["annotations"]
    for rows in (entries, annotations):
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UserError(f"{path}: images and annotations of COCO must be lists of objects", "coco.lists")
    by_number: dict[Any, list[dict[str, Any]]] = {}
    images: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for entry in entries:
        file, number = entry.get("file_name"), entry.get("id")
        if not isinstance(file, str) or not isinstance(number, int | str):
            raise UserError(f"{path}: an image has no file_name or no id", "coco.image")
        name = composed(Path(file.replace("\\", "/")).stem)
        if name in images or number in by_number:
            raise UserError(f"{path} lists the image {name}, or its id {number}, twice: keep one of them", "coco.twice")
        images[name] = entry, by_number.setdefault(number, [])
    for annotation in annotations:
        number = annotation.get("image_id")
        if not isinstance(number, int | str) or number not in by_number:
            raise UserError(f"{path}: annotation {annotation.get('id')} is of no image that is listed", "coco.orphan")
        by_number[number].append(annotation)
    return images


def _run_lengths(path: Path, name: str, coded: dict[str, Any], shape: tuple[int, int]) -> Array:
    """The mask (H, W) of COCO's run lengths: of 0 and 1 by turns, down the columns.

    As text, each length is a number in groups of 5 bits, the lowest first, and from the third on its difference from the last but
    one (rleToString in pycocotools' maskApi.c).
    """
    counts = coded.get("counts")
    runs: list[int] = []
    if isinstance(counts, list) and all(is_int(run, 0, MAX_BYTES) for run in counts):
        runs = counts
    elif isinstance(counts, str):
        value = shift = 0
        for code in counts.encode("latin-1", "replace"):
            code -= 48
            value |= (code & 31) << shift
            shift += 5
            if not code & 32:
                value -= (code & 16) and 1 << shift
                runs.append(value + (runs[-2] if len(runs) > 2 else 0))
                value = shift = 0
            elif shift > 60:
                break
    if coded.get("size") != list(shape) or sum(runs) != shape[0] * shape[1] or min(runs, default=0) < 0:
        raise UserError(
            f"{path}: the run lengths of {name} do not fill an image of {shape[0]} x {shape[1]} pixels",
            "coco.run_lengths",
        )
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(shape[::-1]).T


def roi_covers(path: Path, shape: tuple[int, int]) -> Iterator[Cover]:
    """The objects in a .roi of ImageJ, or in a .zip of them."""
    try:
        import roifile
    except ImportError as error:
        raise MissingExtraError(
            f"{path} needs the package roifile: pip install gcsa-vit[dense]", "roifile.missing"
        ) from error

    areas = ("POLYGON", "RECT", "OVAL", "FREEHAND", "TRACED")
    slices = set()
    for name, data in _roi_bytes(path):
        try:
            roi = roifile.ImagejRoi.frombytes(data)
            rings = [ring for ring in roi.coordinates(multi=True) if len(ring)]
        except Exception as error:  # it raises what it stumbles over: struct.error, TypeError, IndexError ...
            raise UserError(
                f"{path}: {name} cannot be read as a ROI of ImageJ ({one_line(error, 80)})", "roi.unreadable"
            ) from error
        if roi.roitype.name not in areas:
            raise UserError(f"{path}: {name} is a {roi.roitype.name.lower()}, not an area: remove it", "roi.no_area")
        slices.add((roi.position, roi.c_position, roi.z_position, roi.t_position))
        if len(slices) > 1:
            raise UserError(
                f"{path} holds ROIs of several slices of a stack: save those of each image by themselves", "roi.slices"
            )
        yield rasterize(name, [[_ring(path, name, ring) for ring in rings]] if rings else [], shape)


def _roi_bytes(path: Path) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each ROI."""
    if path.suffix.lower() == ".roi":
        yield path.name, path.read_bytes()[:MAX_BYTES]
        return
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.lower().endswith(".roi")]
            if not entries:
                raise UserError(f"{path} holds no .roi: save it from the ROI Manager of ImageJ", "roi.none")
            if sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise UserError(
                    f"{path} holds more than {MAX_BYTES:,} bytes: save the ROIs of each image by themselves",
                    "roi.too_large",
                )
            for entry in entries:
                yield entry.filename, archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise UserError(
            f"{path} cannot be read as a zip file ({one_line(error, 80)}): replace it", "roi.zip"
        ) from error


def _read_json(path: Path) -> Any:
    """Raises UserError for a file that is too large or no JSON."""
    if path.stat().st_size > MAX_BYTES:
        raise UserError(f"{path} is larger than {MAX_BYTES:,} bytes: split it into several files", "json.too_large")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read as JSON ({one_line(error, 80)}): replace it", "json.unreadable"
        ) from error
