"""Opens the results of gcsa segment in napari: label images with their tables, and outlines.

A layer is the tuple that napari asks readers for: data, settings of the layer, and its kind.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.reader import read_labels

Layer = tuple[Any, dict[str, Any], str]
LABELS = "_labels"
"""The stem of a label image of gcsa segment ends so."""


def get_reader(path: str | PathLike[str] | list[str]) -> Callable[[Any], list[Layer]] | None:
    """What opens the file `path`; None for a stack of files, and for a file that gcsa segment does not write."""
    if isinstance(path, list):
        return None
    file = Path(path)
    if file.suffix.lower() == ".geojson":
        return read_outlines
    return read_label_image if file.stem.endswith(LABELS) and file.suffix.lower() in (".png", ".tif") else None


def read_label_image(path: str | PathLike[str]) -> list[Layer]:
    """A label image as a layer of labels, with the columns of NAME_objects.csv where that lies beside it.

    Raises UserError, naming the file, as `gcsa.images.reader.read_labels`, and for a table of another label image.
    """
    file = Path(path)
    name = file.stem.removesuffix(LABELS)
    labels = read_labels(file)
    table = file.with_name(f"{name}_objects.csv")
    settings: dict[str, Any] = {"name": file.stem}
    if table.is_file():
        settings["features"] = _columns(table, int(labels.max(initial=0)))
    return [(labels, settings, "labels")]


def _columns(table: Path, objects: int) -> dict[str, Array]:
    """The columns of a table of objects, by their names; that of labels is the index of napari."""
    with table.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    try:
        values = np.array(rows, np.float64).reshape(len(rows), len(header))
        columns = {name: values[:, i] for i, name in enumerate(header)}
        columns = {"index": columns.pop("label").astype(int)} | columns
    except (KeyError, ValueError) as error:
        raise UserError(
            f"{table} is no table of gcsa segment: move it away from the label image", "table.unreadable", table=table
        ) from error
    if columns["index"].tolist() != list(range(1, objects + 1)):
        raise UserError(
            f"{table} is not of the {objects} objects of the label image beside it: move it away", "table.objects"
        )
    return columns


def read_outlines(path: str | PathLike[str]) -> list[Layer]:
    """The polygons of a GeoJSON file as a layer of shapes, row and column of each corner, with the scores of the objects.

    Whole numbers are corners of pixels in GeoJSON, and centres in napari. Raises UserError, naming the file, for what gcsa segment
    does not write: other geometries and polygons with holes.
    """
    try:
        features = json.loads(Path(path).read_text(encoding="utf-8"))["features"]
        polygons = [_corners(feature["geometry"]) for feature in features]
        scores = [float(feature["properties"]["measurements"]["score"]) for feature in features]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} does not hold outlines of gcsa segment: open the label image instead", "outlines.unreadable"
        ) from error
    settings = {"name": Path(path).stem, "shape_type": "polygon", "features": {"score": scores}}
    colours = {"face_color": "transparent", "edge_color": "yellow"}
    return [(polygons, {**settings, **colours}, "shapes")]


def _corners(geometry: dict[str, Any]) -> Array:
    """The corners (n, 2), row and column, of a polygon, the first of which GeoJSON repeats at the end."""
    if geometry["type"] != "Polygon":
        raise ValueError(geometry["type"])
    (ring,) = geometry["coordinates"]
    return np.array(ring, np.float64).reshape(-1, 2)[:-1, ::-1] - 0.5
