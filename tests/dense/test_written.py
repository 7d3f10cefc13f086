"""What segment.py writes: read back, it says what was found."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from gcsa.dense.data.pictures import read_labels
from gcsa.dense.source import InMemory
from gcsa.dense.stars import Objects, draw
from gcsa.dense.tiles import Segmented
from gcsa.dense.written import BORDER, KINDS, geojson, overlay, write

SHAPE = (60, 80)


def found(*objects: tuple[float, float, float, float]) -> Segmented:
    """Discs of row, column, radius and score."""
    points = np.array([o[:2] for o in objects]).reshape(-1, 2)
    rays = np.array([[o[2]] * 32 for o in objects], np.float32).reshape(-1, 32)
    discs = Objects(points, rays, np.array([o[3] for o in objects]))
    return Segmented(draw(discs, SHAPE), discs)


def source(channels: int = 3) -> InMemory:
    return InMemory(np.full((*SHAPE, channels), 100, np.uint8))


TWO = found((20, 30, 8, 0.9), (58, 78, 12, 0.6))


def test_files_of_objects(tmp_path: Path) -> None:
    paths = write(TWO, source(), (0, 200), tmp_path / "a.b")
    assert [path.name for path in paths] == ["a.b_labels.png", "a.b_overlay.png", "a.b_objects.csv", "a.b.geojson"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert np.array_equal(read_labels(paths[0]), TWO.labels)
    rows = list(csv.DictReader(paths[2].read_text().splitlines()))
    assert [row["label"] for row in rows] == ["1", "2"]
    first = rows[0]
    assert float(first["row"]) == pytest.approx(20, abs=0.1)
    assert float(first["column"]) == pytest.approx(30, abs=0.1)
    assert int(first["area"]) == (TWO.labels == 1).sum()
    assert float(first["score"]) == 0.9
    assert [int(first[side]) for side in ("top", "left", "bottom", "right")] == [
        np.flatnonzero((TWO.labels == 1).any(1)).min(),
        np.flatnonzero((TWO.labels == 1).any(0)).min(),
        np.flatnonzero((TWO.labels == 1).any(1)).max() + 1,
        np.flatnonzero((TWO.labels == 1).any(0)).max() + 1,
    ]


def test_polygons_cover_their_pixels_and_stay_in_the_picture() -> None:
    """In QuPath's coordinates the centre of pixel (row, column) is (column + 1/2, row + 1/2)."""
    from skimage.draw import polygon2mask

    features = geojson(TWO)["features"]
    for number, feature in enumerate(features, 1):
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        assert len(ring) == 33
        corners = np.array(ring)
        assert corners.min() >= 0
        assert (corners <= (SHAPE[1], SHAPE[0])).all()
        mask = polygon2mask(SHAPE, corners[:, ::-1] - 0.5)
        assert (mask != (TWO.labels == number)).mean() < 0.02
        assert feature["properties"]["objectType"] == "detection"
    assert [feature["properties"]["measurements"]["score"] for feature in features] == [0.9, 0.6]


def test_overlay_shows_the_picture_and_borders() -> None:
    shown = overlay(TWO.labels, source(1), (0, 200))
    assert shown.shape == (*SHAPE, 3)
    assert shown[0, 0].tolist() == [127] * 3
    assert shown[20, 30].tolist() == [127] * 3
    bordered = (shown == BORDER).all(-1)
    assert bordered.any()
    assert (TWO.labels[bordered] > 0).all()


def test_a_large_overlay_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcsa.dense.written.LONGEST_OVERLAY", 30)
    assert overlay(TWO.labels, source(), (0, 200)).shape == (20, 27, 3)


def test_no_objects(tmp_path: Path) -> None:
    paths = write(found(), source(), (0, 200), tmp_path / "x")
    assert not read_labels(paths[0]).any()
    assert len(paths[2].read_text().splitlines()) == 1
    assert json.loads(paths[3].read_text()) == {"type": "FeatureCollection", "features": []}


def test_an_object_over_the_whole_picture(tmp_path: Path) -> None:
    whole = found((30, 40, 200, 0.9))
    assert (whole.labels == 1).all()
    paths = write(whole, source(), (0, 200), tmp_path / "x")
    with Image.open(paths[1]) as image:
        assert image.size == (80, 60)
    (ring,) = json.loads(paths[3].read_text())["features"][0]["geometry"]["coordinates"]
    assert {0, 80} <= {x for x, _ in ring}


def test_classes(tmp_path: Path) -> None:
    labels = np.zeros(SHAPE, np.int32)
    labels[:30] = 2
    paths = write(Segmented(labels, None), source(), (0, 200), tmp_path / "x")
    assert [path.name for path in paths] == ["x_labels.png", "x_overlay.png", "x_classes.csv"]
    assert paths[2].read_text().splitlines() == ["class,pixels,share", "0,2400,0.5", "1,0,0.0", "2,2400,0.5"]


def test_more_objects_than_16_bits(tmp_path: Path) -> None:
    labels = np.arange(66_000, dtype=np.int32).reshape(200, 330)
    (path,) = write(
        Segmented(labels, None), InMemory(np.zeros((200, 330, 3), np.uint8)), (0, 1), tmp_path / "x", ["labels"]
    )
    assert path.name == "x_labels.tif"
    assert np.array_equal(tifffile.imread(path), labels)


@pytest.mark.parametrize("kind", KINDS)
def test_only(kind: str, tmp_path: Path) -> None:
    paths = write(TWO, source(), (0, 200), tmp_path / "x", [kind])
    assert list(tmp_path.iterdir()) == paths
    assert len(paths) == 1
