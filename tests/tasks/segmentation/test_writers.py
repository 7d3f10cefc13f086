"""What gcsa segment writes: read back, it says what was found."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa.images.reader import read_labels
from gcsa.images.windows import ROWS, ArrayImage
from gcsa.tasks.segmentation.predict import Segmentation
from gcsa.tasks.segmentation.stars import DrawnObjects, Objects, draw
from gcsa.tasks.segmentation.writers import (
    BORDER,
    ENDINGS,
    KINDS,
    PROPERTIES,
    UNITS,
    check_properties,
    features,
    overlay,
    write,
)
from tests.errors import raises

SHAPE = (60, 80)


def result_of(*objects: tuple[float, float, float, float]) -> Segmentation:
    """Discs of row, column, radius and score."""
    points = np.array([o[:2] for o in objects]).reshape(-1, 2)
    rays = np.array([[o[2]] * 32 for o in objects], np.float32).reshape(-1, 32)
    discs = Objects(points, rays, np.array([o[3] for o in objects]))
    return Segmentation(DrawnObjects(discs, SHAPE), discs)


def source(channels: int = 3) -> ArrayImage:
    return ArrayImage(np.full((*SHAPE, channels), 100, np.uint8))


TWO = result_of((20, 30, 8, 0.9), (58, 78, 12, 0.6))


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


def table(path: Path) -> dict[str, list[float]]:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    return {key: [float(row[key]) for row in rows] for key in rows[0]}


def test_micrometres_and_properties(tmp_path: Path) -> None:
    """Of a disc of radius 8 pixels, which is an ellipse where pixels are oblong, and of intensities by hand."""
    disc, height, width = result_of((20, 30, 8, 0.9)), 0.5, 2.0
    values = np.random.default_rng(0).integers(0, 4096, SHAPE, np.uint16)
    picture = ArrayImage(np.repeat(values[..., None], 3, axis=2))
    names = [
        "axis_major_length",
        "axis_minor_length",
        "eccentricity",
        "feret_diameter_max",
        "intensity_mean",
        "area_convex",
    ]
    (path,) = write(disc, picture, (0, 1), tmp_path / "x", ["csv"], properties=names, pixel_size=(height, width))
    found = table(path)
    inside = values[disc.labels == 1]
    assert found["area_um2"] == [found["area"][0] * height * width]
    assert (found["row_um"], found["column_um"]) == ([20 * height], [30 * width])
    assert found["axis_major_length_um"] == pytest.approx([2 * 8 * width], rel=0.03)
    assert found["axis_minor_length_um"] == pytest.approx([2 * 8 * height], rel=0.03)
    assert found["eccentricity"] == pytest.approx([(1 - (height / width) ** 2) ** 0.5], abs=0.01)
    assert found["feret_diameter_max_um"] == pytest.approx([2 * 8 * width], rel=0.1)
    assert found["area_convex_um2"] == pytest.approx(found["area_um2"], rel=0.1)
    assert found["intensity_mean"] == pytest.approx([inside.mean()], rel=1e-5)
    with raises("properties.not_square"):
        check_properties(["solidity", "perimeter"], (height, width))
    check_properties(["solidity"], (height, width))
    check_properties(["perimeter"], None)


def test_every_property_in_pixels_and_in_micrometres(tmp_path: Path) -> None:
    """Lengths and areas change by the size of a pixel and its square, all else does not."""
    values = np.random.default_rng(0).integers(0, 256, (*SHAPE, 3), np.uint8)
    tables = [
        table(
            write(
                TWO, ArrayImage(values), (0, 1), tmp_path / "x", ["csv"], properties=list(PROPERTIES), pixel_size=size
            )[0]
        )
        for size in (None, (0.25, 0.25), (0.25, 0.25002))
    ]
    for name, power in PROPERTIES.items():
        for end in ("_red", "_green", "_blue") if name.startswith("intensity") else ("",):
            expected = [value * 0.25**power for value in tables[0][name + end]]
            for other in tables[1:]:
                assert other[name + UNITS[power] + end] == pytest.approx(expected, rel=2e-4), name
    assert tables[0]["intensity_max_green"] == [values[..., 1][TWO.labels == label].max() for label in (1, 2)]
    empty = write(result_of(), source(), (0, 1), tmp_path / "y", ["csv"], properties=["solidity", "intensity_max"])[0]
    assert empty.read_text().splitlines()[0].endswith(",solidity,intensity_max")


def test_small_objects_are_left_out() -> None:
    three = result_of((20, 30, 3, 0.9), (40, 60, 8, 0.8), (10, 60, 2, 0.7))
    kept = three.without_small(int((three.labels == 2).sum()))
    assert np.array_equal(kept.labels, three.labels == 2)
    assert kept.objects is not None
    assert kept.objects.scores.tolist() == [0.8]
    assert np.array_equal(three.without_small(1).labels, three.labels)
    assert not three.without_small(1000).labels.any()


def test_polygons_cover_their_pixels_and_stay_in_the_picture() -> None:
    """In QuPath's coordinates the centre of pixel (row, column) is (column + 1/2, row + 1/2)."""
    from skimage.draw import polygon2mask

    for number, feature in enumerate(features(TWO), 1):
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        corners = np.array(ring)
        assert corners.min() >= 0
        assert (corners <= (SHAPE[1], SHAPE[0])).all()
        mask = polygon2mask(SHAPE, corners[:, ::-1] - 0.5)
        assert (mask != (TWO.labels == number)).sum() <= 8  # whose centres lie on the border of the polygon
        assert feature["properties"]["objectType"] == "detection"
    assert [feature["properties"]["measurements"]["score"] for feature in features(TWO)] == [0.9, 0.6]


def area(ring: Array) -> float:
    """Of a polygon (n, 2)."""
    first, second = ring.T
    return float(abs(first @ np.roll(second, 1) - second @ np.roll(first, 1)) / 2)


@pytest.mark.parametrize("seed", range(8))
def test_polygons_are_clipped_at_the_border(seed: int) -> None:
    """In one piece whose area is that of very fine pixels."""
    from skimage.draw import polygon2mask

    rng = np.random.default_rng(seed)
    centre = np.array([[rng.integers(0, 4), rng.integers(0, 80)]], float)
    radii = (rng.uniform(3, 60) * np.exp(rng.normal(0, 0.4, (1, 32)))).astype(np.float32)
    result = Segmentation(ArrayImage(np.zeros(SHAPE, np.int32)), Objects(centre, radii, np.ones(1)))
    ((ring,),) = (feature["geometry"]["coordinates"] for feature in features(result))
    corners = np.array(ring)
    assert ring[0] == ring[-1]
    assert corners.min() >= 0
    assert (corners <= SHAPE[::-1]).all()
    fine = polygon2mask((600, 800), 10 * (result.objects.outlines()[0] + 0.5) - 0.5)  # type: ignore[union-attr]
    assert area(corners[:-1]) == pytest.approx(fine.sum() / 100, rel=0.02)


def test_overlay_shows_the_picture_and_borders() -> None:
    shown = overlay(TWO.label_map, source(1), (0, 200))
    assert shown.shape == (*SHAPE, 3)
    assert shown[0, 0].tolist() == [127] * 3
    assert shown[20, 30].tolist() == [127] * 3
    bordered = (shown == BORDER).all(-1)
    assert bordered.any()
    assert (TWO.labels[bordered] > 0).all()


def test_a_large_overlay_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows every third pixel, also of those that a picture of several strips ends in."""
    monkeypatch.setattr("gcsa.tasks.segmentation.writers.MAX_OVERLAY_SIDE", 200)
    values = np.random.default_rng(0).integers(0, 256, (601, 80, 3), dtype=np.uint8)
    shown = overlay(ArrayImage(np.zeros((601, 80), np.int32)), ArrayImage(values), (0, 255))
    assert shown.shape == (151, 20, 3)
    assert np.array_equal(shown, values[::4, ::4])


def test_no_objects(tmp_path: Path) -> None:
    paths = write(result_of(), source(), (0, 200), tmp_path / "x")
    assert not read_labels(paths[0]).any()
    assert len(paths[2].read_text().splitlines()) == 1
    assert json.loads(paths[3].read_text()) == {"type": "FeatureCollection", "features": []}


def test_geojson_is_read_back(tmp_path: Path) -> None:
    (path,) = write(TWO, source(), (0, 200), tmp_path / "x", ["geojson"])
    assert json.loads(path.read_text()) == {"type": "FeatureCollection", "features": list(features(TWO))}


def test_an_object_over_the_whole_picture(tmp_path: Path) -> None:
    whole = result_of((30, 40, 200, 0.9))
    assert (whole.labels == 1).all()
    paths = write(whole, source(), (0, 200), tmp_path / "x")
    with Image.open(paths[1]) as image:
        assert image.size == (80, 60)
    (ring,) = json.loads(paths[3].read_text())["features"][0]["geometry"]["coordinates"]
    assert ring[0] == ring[-1]
    assert sorted(map(tuple, ring[1:])) == [(0, 0), (0, 60), (80, 0), (80, 60)]


def test_classes(tmp_path: Path) -> None:
    labels = np.zeros(SHAPE, np.int32)
    labels[:30] = 2
    paths = write(Segmentation(ArrayImage(labels), None, 4), source(), (0, 200), tmp_path / "x")
    assert [path.name for path in paths] == ["x_labels.png", "x_overlay.png", "x_classes.csv"]
    assert paths[2].read_text().splitlines() == ["class,pixels,share", "0,2400,0.5", "1,0,0.0", "2,2400,0.5", "3,0,0.0"]


def test_more_objects_than_16_bits(tmp_path: Path) -> None:
    labels = np.arange(66_000, dtype=np.int32).reshape(200, 330)
    (path,) = write(
        Segmentation(ArrayImage(labels), None, 66_000),
        ArrayImage(np.zeros((200, 330, 3), np.uint8)),
        (0, 1),
        tmp_path / "x",
        ["labels"],
    )
    assert path.name == "x_labels.tif"
    assert np.array_equal(tifffile.imread(path), labels)


def test_label_images_of_an_earlier_result_go(tmp_path: Path) -> None:
    many = np.arange(66_000, dtype=np.int32).reshape(200, 330)
    for labels in (many, many % 9, many):
        picture = ArrayImage(np.zeros((200, 330, 3), np.uint8))
        paths = write(
            Segmentation(ArrayImage(labels), None, int(labels.max()) + 1), picture, (0, 1), tmp_path / "x", ["labels"]
        )
        assert list(tmp_path.iterdir()) == paths


class Watched(DrawnObjects):
    """Notes how many rows are drawn at a time."""

    most = 0

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        self.most = max(self.most, bottom - top)
        return super().window(top, left, bottom, right)


def test_a_large_image_is_written_by_strips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also objects in several strips, partly hidden ones and one longer than a strip have the numbers of the whole label map."""
    from skimage.measure import regionprops_table

    monkeypatch.setattr("gcsa.tasks.segmentation.writers.MAX_PNG", 0)
    monkeypatch.setattr("gcsa.tasks.segmentation.writers.AT_ONCE", 150)
    rng, shape, count = np.random.default_rng(0), (4 * ROWS + 75, 90), 400
    points = rng.uniform((0, 0), shape, (count, 2))
    radii = (rng.uniform(2, 15, (count, 1)) * np.exp(rng.normal(0, 0.1, (count, 32)))).astype(np.float32)
    points[0], radii[0] = (ROWS, 45), 0.55 * ROWS  # below all others
    points, radii = points[::-1], radii[::-1]
    objects = Objects(points, radii, np.linspace(1, 0.5, count))
    watched, values = Watched(objects, shape), rng.integers(0, 256, (*shape, 3), np.uint8)
    result, image = Segmentation(watched, objects), ArrayImage(values)
    names = ["intensity_mean", "solidity", "perimeter"]
    tif, csv_file, geojson = write(
        result, image, (0, 1), tmp_path / "x", ["labels", "csv", "geojson"], properties=names
    )
    assert watched.most < 3 * ROWS
    labels = draw(objects, shape)
    assert np.array_equal(read_labels(tif), labels)
    with tifffile.TiffFile(tif) as file:
        assert file.pages[0].is_tiled
        assert file.pages[0].compression == tifffile.COMPRESSION.ADOBE_DEFLATE
    polygons = json.loads(geojson.read_text())["features"]
    assert [polygon["properties"]["name"] for polygon in polygons] == [str(number) for number in range(1, count + 1)]
    found, whole = table(csv_file), regionprops_table(labels, values, ["label", "centroid", "area", "bbox", *names])
    columns = ["label", "row", "column", "area", "top", "left", "bottom", "right"]
    columns += ["intensity_mean_red", "intensity_mean_green", "intensity_mean_blue", "solidity", "perimeter"]
    for name, expected in zip(columns, whole.values(), strict=True):
        digits = ".2f" if name in ("row", "column") else ".6g"
        assert found[name] == [float(f"{value:{digits}}") for value in expected.tolist()], name


@pytest.mark.parametrize("kind", KINDS)
def test_only(kind: str, tmp_path: Path) -> None:
    paths = write(TWO, source(), (0, 200), tmp_path / "x", [kind])
    assert list(tmp_path.iterdir()) == paths
    assert len(paths) == 1
    assert paths[0].name.removeprefix("x") in ENDINGS[kind]
