"""napari opens what gcsa segment writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcsa.images.windows import ArrayImage
from gcsa.integrations.napari.reader import get_reader
from gcsa.tasks.segmentation.predict import Segmentation
from gcsa.tasks.segmentation.stars import DrawnObjects, Objects
from gcsa.tasks.segmentation.writers import write
from tests.errors import raises


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What gcsa segment writes for an image of 40 x 50 pixels with two objects, one of them at the border."""
    points, scores = np.array([[10.0, 12.0], [38.0, 40.0]]), np.array([0.9, 0.7])
    objects = Objects(points, np.full((2, 16), 6, np.float32), scores)
    result = Segmentation(DrawnObjects(objects, (40, 50)), objects)
    write(result, ArrayImage(np.zeros((40, 50, 1), np.uint8)), (0, 1), tmp_path / "a")
    return tmp_path


def opened(path: Path) -> Any:
    reader = get_reader(str(path))
    assert reader is not None
    (layer,) = reader(str(path))
    return layer


def test_label_images_have_their_table(files: Path) -> None:
    labels, settings, kind = opened(files / "a_labels.png")
    assert (kind, settings["name"], labels.shape, labels.max()) == ("labels", "a_labels", (40, 50), 2)
    table = settings["features"]
    assert table["index"].tolist() == [1, 2]
    assert table["score"].tolist() == [0.9, 0.7]
    assert table["area"].tolist() == [(labels == 1).sum(), (labels == 2).sum()]
    (files / "a_objects.csv").write_text("label,row\n1,2\n")
    with raises("table.objects"):
        opened(files / "a_labels.png")
    (files / "a_objects.csv").write_text("name,row\nx,2\n")
    with raises("table.unreadable"):
        opened(files / "a_labels.png")
    (files / "a_objects.csv").unlink()
    assert "features" not in opened(files / "a_labels.png")[1]


def test_outlines_lie_on_their_objects(files: Path) -> None:
    from skimage.draw import polygon2mask

    polygons, settings, kind = opened(files / "a.geojson")
    assert (kind, settings["shape_type"], settings["features"]) == ("shapes", "polygon", {"score": [0.9, 0.7]})
    labels = opened(files / "a_labels.png")[0]
    for number, polygon in enumerate(polygons, 1):
        mask = polygon2mask(labels.shape, polygon)
        inside = labels == number
        assert (mask & inside).sum() / (mask | inside).sum() > 0.9


def test_other_files_are_not_ours(files: Path) -> None:
    assert get_reader(str(files / "a.png")) is None
    assert get_reader([str(files / "a_labels.png")]) is None
    content = json.loads((files / "a.geojson").read_text())
    content["features"][0]["geometry"]["type"] = "Point"
    (files / "a.geojson").write_text(json.dumps(content))
    with raises("outlines.unreadable"):
        opened(files / "a.geojson")
