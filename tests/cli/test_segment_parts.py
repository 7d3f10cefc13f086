"""gcsa segment on levels, rectangles and OME-Zarr: coordinates are those of the whole image at level 0."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tifffile

from gcsa._utils.arrays import Array
from gcsa.actions import transform_array
from gcsa.groups import group
from gcsa.images.reader import read_labels
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation import SegmentationPredictor
from tests.images.slide_files import halved
from tests.images.zarr_files import write_zarr
from tests.tasks.segmentation.networks import uneven

from .conftest import Run
from .test_segment import made, weights  # noqa: F401

LEVELS = halved(uneven((80, 104, 3)), 1)


@pytest.fixture
def pyramid(tmp_path: Path) -> Path:
    """A picture of two levels, of half a micrometre a pixel."""
    path = tmp_path / "x.ome.tif"
    with tifffile.TiffWriter(path, ome=True) as file:
        about = {"axes": "YXS", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
        file.write(LEVELS[0], subifds=1, metadata=about, photometric="rgb", tile=(16, 16))
        file.write(LEVELS[1], subfiletype=1, photometric="rgb", tile=(16, 16))
    return path


def read(folder: Path, stem: str) -> tuple[Array, list[dict[str, str]], list[Array]]:
    """The label image, the rows of the table, and the corners (x, y) of each polygon."""
    (file,) = folder.glob(f"{stem}_labels.*")
    rows = list(csv.DictReader((folder / f"{stem}_objects.csv").read_text().splitlines()))
    features = json.loads((folder / f"{stem}.geojson").read_text())["features"]
    return read_labels(file), rows, [np.array(one["geometry"]["coordinates"][0]) for one in features]


def test_a_rectangle(run: Run, weights: Path, made: SegmentationPredictor, pyramid: Path, tmp_path: Path) -> None:  # noqa: F811
    code, _, err = run("segment", weights, pyramid, "--output", tmp_path / "found", "--roi", "30,20,44,40")
    assert (code, err) == (0, "")
    labels, rows, polygons = read(tmp_path / "found", "x.ome")
    expected = made.predict(LEVELS[0][20:60, 30:74], whole=ArrayImage(LEVELS[0]))
    assert np.array_equal(labels, expected.labels)
    assert len(rows) == len(polygons) == labels.max() > 3
    for number, (row, polygon) in enumerate(zip(rows, polygons, strict=True), 1):
        y, x = np.nonzero(labels == number)
        assert float(row["row"]) == pytest.approx(y.mean() + 20, abs=0.006)
        assert float(row["column_um"]) == pytest.approx((x.mean() + 30) / 2, rel=1e-4)
        box = [int(row[key]) for key in ("top", "left", "bottom", "right")]
        assert box == [y.min() + 20, x.min() + 30, y.max() + 21, x.max() + 31]
        assert (polygon.min(0) >= (30, 20)).all()
        assert (polygon.max(0) <= (74, 60)).all()
        assert (abs(polygon.mean(0) - (x.mean() + 30.5, y.mean() + 20.5)) < 6).all()


def test_a_level(run: Run, weights: Path, made: SegmentationPredictor, pyramid: Path, tmp_path: Path) -> None:  # noqa: F811
    code, _, err = run("segment", weights, pyramid, "--output", tmp_path / "found", "--level", 1)
    assert (code, err) == (0, "")
    labels, rows, _ = read(tmp_path / "found", "x.ome")
    small = made.predict(LEVELS[1])
    assert labels.shape == (80, 104)
    assert np.array_equal(labels, made.predict(LEVELS[1], shape=(80, 104)).labels)
    assert len(rows) >= len(small.objects) - 1
    assert sum(int(row["area"]) for row in rows) == (labels > 0).sum()
    halves = labels[::2, ::2] > 0
    assert (halves == (small.labels > 0)).mean() > 0.9, "the same objects, twice as large"
    code, _, err = run("segment", weights, pyramid, "--output", tmp_path / "both", "--level", 1, "--roi", "31,21,40,30")
    assert (code, err) == (0, "")
    labels, rows, _ = read(tmp_path / "both", "x.ome")
    expected = made.predict(LEVELS[1][10:26, 15:36], shape=(32, 42), whole=ArrayImage(LEVELS[1]))
    assert np.array_equal(labels, expected.labels)
    assert min(int(row["top"]) for row in rows) >= 20
    assert max(int(row["right"]) for row in rows) <= 72
    code, _, err = run("segment", weights, pyramid, "--output", tmp_path / "mpp", "--level", 1, "--mpp", 0.5)
    assert (code, err) == (0, "")
    expected = made.predict(LEVELS[1], scale=2.0, shape=(80, 104))
    assert np.array_equal(read(tmp_path / "mpp", "x.ome")[0], expected.labels)


@pytest.mark.parametrize("output", ["instances", "classes"])
def test_levels_are_exact(made: SegmentationPredictor, output: str) -> None:  # noqa: F811
    predictor = made
    if output == "classes":
        from .test_segment import SIZES

        predictor = SegmentationPredictor.create("gcsa_unet_tiny", output="classes", num_classes=3, **SIZES)
    d4, picture = group("d4"), LEVELS[1]
    upright = predictor.predict(picture, shape=(81, 103)).labels
    assert upright.shape == (81, 103)
    for g in range(8):
        turned = np.ascontiguousarray(transform_array(picture, d4, g))
        shape = transform_array(upright, d4, g).shape
        found = predictor.predict(turned, shape=(shape[0], shape[1])).labels
        assert np.array_equal(found, transform_array(upright, d4, g))


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--roi", "1,2,3"], 2, "1,2,3 is not X,Y,WIDTH,HEIGHT in whole pixels"),
        (["--roi", "1,2,3,0"], 2, "1,2,3,0 is not X,Y,WIDTH,HEIGHT"),
        (["--roi", "-1,2,3,4"], 2, "argument --roi"),
        (["--level", "x"], 2, "x is not a whole number from 0, the finest level"),
        (["--level", "2"], 1, "x.ome.tif holds 2 levels, counted from 0: there is no --level 2"),
        (["--roi", "100,0,5,5"], 1, "x.ome.tif is 104 pixels wide and 80 high: --roi 100,0,5,5 reaches beyond it"),
    ],
    ids=str,
)
def test_what_is_not_there(
    run: Run,
    weights: Path,  # noqa: F811
    pyramid: Path,
    tmp_path: Path,
    options: list[str],
    status: int,
    message: str,
) -> None:
    code, out, err = run("segment", weights, pyramid, "--output", tmp_path / "found", *options)
    assert (code, out, message in err) == (status, "", True), err
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_ome_zarr(run: Run, weights: Path, made: SegmentationPredictor, tmp_path: Path, version: str) -> None:  # noqa: F811
    pytest.importorskip("zarr")
    stack = uneven((2, 3, 40, 52), 4096, np.uint16, axes=(2, 3))
    write_zarr(tmp_path / "in/x.zarr", [stack], "czyx", version, names=["DAPI", "GFP"])
    command = ("segment", weights, tmp_path / "in", "--channel", "GFP", "--z", "max", "--output")
    code, out, err = run(*command, tmp_path / "found")
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'in/x.zarr'}: ")
    labels, rows, _ = read(tmp_path / "found", "x")
    assert np.array_equal(labels, made.predict(stack[1].max(0)).labels)
    assert all(float(row["area_um2"]) == int(row["area"]) / 4 for row in rows)
    code, out, _ = run("segment", weights, tmp_path / "in/x.zarr", "--z", "all", "--channel", 1, "--output", "slices")
    assert (code, out.count("x.zarr, slice ")) == (0, 3)
    code, _, err = run(*command, tmp_path / "in/x.zarr/found")
    assert (code, "is in the image" in err) == (2, True)
    assert {path.name for path in (tmp_path / "in/x.zarr").iterdir()} <= {"0", "zarr.json", ".zattrs", ".zgroup"}
