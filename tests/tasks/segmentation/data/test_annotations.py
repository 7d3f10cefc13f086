"""Label maps survive the formats of other programs, and what is ambiguous in a file is one sentence."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
import tifffile

from gcsa._utils.arrays import Array
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation.data.annotations import read_mask
from gcsa.tasks.segmentation.data.datamodule import MasksDataModule
from gcsa.tasks.segmentation.data.pairs import pairs_in
from gcsa.tasks.segmentation.predict import Segmentation
from gcsa.tasks.segmentation.stars import DrawnObjects, Objects
from gcsa.tasks.segmentation.writers import write
from tests.errors import raises

SHAPE = (40, 52)
IMAGE = Path("a.tif")


def label_map(holes: bool = True) -> Array:
    """Discs that touch each other and the border; 3 has a hole with 5 in it, and 2 is in two pieces that touch at a corner."""
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    labels = np.zeros(SHAPE, np.int32)
    for number, (row, column, radius) in enumerate([(6, 8, 9), (20, 4, 6), (25, 30, 11), (8, 20, 5)], 1):
        labels[(np.hypot(y - row, x - column) < radius) & (labels == 0)] = number
    if holes:
        labels[22:29, 27:34] = 0
        labels[24:26, 29:32] = 5
        labels[31, 10:14] = labels[32, 14:16] = 2
    return labels


def outlines(labels: Array) -> list[shapely.Geometry]:
    """Along the sides of the pixels of each object."""
    return [
        shapely.union_all([shapely.box(x, y, x + 1, y + 1) for y, x in np.argwhere(labels == number)])
        for number in range(1, labels.max() + 1)
    ]


def geojson(path: Path, labels: Array) -> Path:
    features = [
        {"type": "Feature", "geometry": shapely.geometry.mapping(outline), "properties": {"objectType": "annotation"}}
        for outline in outlines(labels)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def coco(path: Path, segmentations: list[Any], **entry: Any) -> Path:
    image = {"id": 7, "file_name": f"folder/{IMAGE}", "height": SHAPE[0], "width": SHAPE[1]} | entry
    annotations = [{"id": i, "image_id": 7, "segmentation": one} for i, one in enumerate(segmentations)]
    path.write_text(json.dumps({"images": [image], "annotations": annotations}))
    return path


def test_geojson_gives_masks_back_exactly(tmp_path: Path) -> None:
    """Polygons, holes and several pieces, along the sides of pixels."""
    labels = label_map()
    kinds = {outline.geom_type for outline in outlines(labels)}
    assert kinds == {"Polygon", "MultiPolygon"}
    path = geojson(tmp_path / "a.geojson", labels)
    assert np.array_equal(read_mask(path, IMAGE, SHAPE), labels)
    features = json.loads(path.read_text())["features"]
    path.write_text(json.dumps(features))  # as some versions of QuPath write them
    assert np.array_equal(read_mask(path, IMAGE, SHAPE), labels)
    path.write_text(json.dumps(features[2]))
    assert np.array_equal(read_mask(path, IMAGE, SHAPE), labels == 3)
    path.write_text('{"type": "FeatureCollection", "features": []}')
    assert not read_mask(path, IMAGE, SHAPE).any()


def test_our_own_geojson_is_the_label_map_but_for_borders(tmp_path: Path) -> None:
    """Also of objects that overlap. A pixel can differ if the outline, rounded to 0.001 pixels, runs through its centre."""
    discs = Objects(
        np.array([[20, 30], [22.0, 44.0], [2, 5]]), np.full((3, 32), 9, np.float32), np.array([0.9, 0.8, 0.7])
    )
    result = Segmentation(DrawnObjects(discs, SHAPE), discs)
    picture = ArrayImage(np.zeros((*SHAPE, 3), np.uint8))
    (path,) = write(result, picture, (0, 1), tmp_path / "a", ["geojson"])
    assert (read_mask(path, IMAGE, SHAPE) != result.labels).sum() <= 8


def test_coco_polygons(tmp_path: Path) -> None:
    labels = label_map(holes=False)
    flat = [[shapely.get_coordinates(outline.exterior).ravel().tolist()] for outline in outlines(labels)]
    left, right = (
        [10, 33, 12, 33, 12, 36, 10, 36],
        [11, 34, 15, 34, 15, 36, 11, 36],
    )  # two polygons of one object, in one
    path = coco(tmp_path / "a.json", [*flat, [left, right]])
    labels[33:36, 10:12] = labels[34:36, 11:15] = 5
    assert np.array_equal(read_mask(path, IMAGE, SHAPE), labels)


@pytest.mark.parametrize("compressed", [True, False])
def test_coco_run_lengths_are_exact(compressed: bool, tmp_path: Path) -> None:
    labels = label_map()
    segmentations = []
    for number in range(1, 6):
        mask = labels == number
        if compressed:
            coded = pytest.importorskip("pycocotools.mask").encode(np.asfortranarray(mask.astype(np.uint8)))
            segmentations.append({"size": coded["size"], "counts": coded["counts"].decode()})
            continue
        columns = mask.T.ravel()
        ends = np.flatnonzero(np.diff(columns, prepend=False, append=not columns[-1]))
        segmentations.append({"size": list(SHAPE), "counts": np.diff(ends, prepend=0).tolist()})
    path = coco(tmp_path / "a.json", segmentations)
    assert np.array_equal(read_mask(path, IMAGE, SHAPE), labels)


def test_rois_of_imagej(tmp_path: Path) -> None:
    """Polygons, and as ImageJ stores what has holes or several pieces: paths of a composite."""
    roifile = pytest.importorskip("roifile")
    labels = label_map()
    rois = []
    for outline in outlines(labels):
        rings = [
            shapely.get_coordinates(ring)
            for part in shapely.get_parts(outline)
            for ring in (part.exterior, *part.interiors)
        ]
        if len(rings) == 1:
            rois.append(roifile.ImagejRoi.frompoints(rings[0][:-1]))
            continue
        steps = [[[0.0 if i == 0 else 1.0, *point] for i, point in enumerate(ring)] for ring in rings]
        path = np.concatenate([[*np.ravel(ring), 4.0] for ring in steps]).astype(np.float32)
        composite = roifile.ImagejRoi(roitype=roifile.ROI_TYPE.RECT, multi_coordinates=path, shape_roi_size=len(path))
        rois.append(composite)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i, roi in enumerate(rois):
            archive.writestr(f"{i}.roi", roi.tobytes())
    assert np.array_equal(read_mask(tmp_path / "a.zip", IMAGE, SHAPE), labels)
    (tmp_path / "a.roi").write_bytes(rois[0].tobytes())
    assert np.array_equal(read_mask(tmp_path / "a.roi", IMAGE, SHAPE), labels == 1)
    point = roifile.ImagejRoi(roitype=roifile.ROI_TYPE.POINT, n_coordinates=1, integer_coordinates=np.array([[1, 1]]))
    (tmp_path / "a.roi").write_bytes(point.tobytes())
    with raises("roi.no_area"):
        read_mask(tmp_path / "a.roi", IMAGE, SHAPE)
    for i, roi in enumerate(rois[:2]):
        roi.position = i + 1
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i, roi in enumerate(rois):
            archive.writestr(f"{i}.roi", roi.tobytes())
    with raises("roi.slices"):
        read_mask(tmp_path / "a.zip", IMAGE, SHAPE)


def test_a_pixel_is_inside_where_its_centre_is(tmp_path: Path) -> None:
    """Against point in polygon, for outlines that run anywhere, also beyond the image."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] + 0.5
    for _ in range(20):
        ring = rng.uniform(-20, 70, (7, 2))
        polygon = shapely.make_valid(shapely.Polygon(ring))  # even-odd, where the outline crosses itself
        expected = shapely.contains_xy(polygon, x, y)
        path = coco(tmp_path / "a.json", [[ring.ravel().tolist()]])
        labels = read_mask(path, IMAGE, SHAPE) if expected.any() else expected
        assert np.array_equal(labels > 0, expected)
        path.unlink()


def square(left: float, top: float, side: float = 4) -> list[list[float]]:
    return [[left, top, left + side, top, left + side, top + side, left, top + side]]


@pytest.mark.parametrize(
    ("segmentations", "entry", "key"),
    [
        ([square(2, 2), square(60, 2)], {}, "annotations.outside"),
        ([square(2, 2), square(3, 2)], {}, "annotations.overlap"),
        ([square(2, 2, 9), square(4, 4, 2)], {}, "annotations.overlap"),
        ([square(0, 2), square(4, 2), square(2, 2)], {}, "annotations.hidden"),
        ([square(2, 2)], {"width": 104}, "coco.size"),
        ([[[1, 2, 3, 4]]], {}, "outline.points"),
        ([[[1, 2, 3, 4, 5, 1e999]]], {}, "outline.points"),
        ([[]], {}, "coco.no_outline"),
        ([{"size": [40, 52], "counts": [3, 4]}], {}, "coco.run_lengths"),
        ([{"size": [40, 52], "counts": "~~~~~~~~~~~~~~~~"}], {}, "coco.run_lengths"),
        ([{"size": [52, 40], "counts": [0, 2080]}], {}, "coco.run_lengths"),
    ],
)
def test_what_is_ambiguous_or_broken_is_named(
    segmentations: list[Any], entry: dict[str, Any], key: str, tmp_path: Path
) -> None:
    with raises(key) as error:
        read_mask(coco(tmp_path / "a.json", segmentations, **entry), IMAGE, SHAPE)
    assert "a.json" in str(error.value)


def test_the_first_of_two_objects_keeps_the_pixels_that_both_cover(tmp_path: Path) -> None:
    labels = read_mask(coco(tmp_path / "a.json", [square(2, 2), square(4, 2)]), IMAGE, SHAPE)
    assert [(labels == number).sum() for number in (1, 2)] == [16, 8]


@pytest.mark.parametrize(
    ("name", "content", "key"),
    [
        ("a.geojson", b'{"type": "Feat', "json.unreadable"),
        ("a.geojson", b"[" * 100_000, "json.unreadable"),
        ("a.geojson", b"3", "geojson.empty"),
        ("a.geojson", b'[{"geometry": {"type": "Point", "coordinates": [1, 2]}}]', "geojson.geometry"),
        ("a.geojson", b'[{"geometry": {"type": "Polygon", "coordinates": 7}}]', "geojson.rings"),
        ("a.geojson", b'[{"geometry": {"type": "Polygon", "coordinates": [["x"]]}}]', "outline.points"),
        ("a.zip", b"no zip file", "roi.zip"),
        ("a.roi", b"Iout" + bytes(60), "annotations.outside"),
    ],
)
def test_damaged_files_are_a_sentence(name: str, content: bytes, key: str, tmp_path: Path) -> None:
    if name.endswith((".roi", ".zip")):
        pytest.importorskip("roifile")
    (tmp_path / name).write_bytes(content)
    with raises(key):
        read_mask(tmp_path / name, IMAGE, SHAPE)


def cellpose(folder: Path, labels: Array, i: int) -> None:
    tifffile.imwrite(folder / f"{i}_cp_masks.tif", labels.astype(np.uint16))


def stardist(folder: Path, labels: Array, i: int) -> None:
    (folder / "masks").mkdir(exist_ok=True)
    tifffile.imwrite(folder / f"masks/{i}.tif", labels.astype(np.uint16))


def qupath(folder: Path, labels: Array, i: int) -> None:
    geojson(folder / f"{i}.geojson", labels)


def one_coco(folder: Path, labels: Array, i: int) -> None:
    """Of all images so far."""
    content: dict[str, Any] = {"images": [], "annotations": []}
    for number in range(i + 1):
        content["images"].append({"id": number, "file_name": f"{number}.tif"})
        for outline in outlines(labels):
            ring = shapely.get_coordinates(outline.exterior).ravel().tolist()
            content["annotations"].append({"id": 0, "image_id": number, "segmentation": [ring]})
    (folder / "_annotations.coco.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("annotate", "nested"),
    [(cellpose, False), (stardist, True), (qupath, False), (qupath, True), (one_coco, False), (one_coco, True)],
)
def test_a_folder_to_train_on(annotate: Callable[..., None], nested: bool, tmp_path: Path) -> None:
    labels = label_map(holes=False)
    pictures = tmp_path / "images" if nested else tmp_path
    pictures.mkdir(exist_ok=True)
    for i in range(10):
        tifffile.imwrite(pictures / f"{i}.tif", (labels * 20).astype(np.uint8))
        annotate(tmp_path, labels, i)
    data = MasksDataModule(path=tmp_path, crop=16)
    data.check_test()
    data.setup()
    examples = [example for split in ("train", "val", "test") for example in data.images(split)]
    assert len(examples) == 10
    assert all(np.array_equal(example.labels, labels) for example in examples)
    data = MasksDataModule(path=tmp_path, labels_are_classes=True)
    if annotate in (qupath, one_coco):
        with raises("mask.outlines"):
            data.setup("test")
    else:
        data.setup("test")


def test_two_annotations_of_one_image_and_pickles_are_named(tmp_path: Path) -> None:
    for name in ("a.tif", "a_seg.npy", "a_outlines_cp_masks.png", "a_rois.zip"):
        (tmp_path / name).touch()
    with raises("pairs.pickled"):
        pairs_in(tmp_path)
    (tmp_path / "a_cp_masks.png").touch()
    assert pairs_in(tmp_path) == [(tmp_path / "a.tif", tmp_path / "a_cp_masks.png")]
    for other in ("a_masks.tif", "a.geojson", "a.zip"):
        (tmp_path / other).touch()
        with raises("pairs.same_name"):
            pairs_in(tmp_path)
        (tmp_path / other).unlink()
    coco(tmp_path / "all.json", [])
    with raises("pairs.same_name"):
        pairs_in(tmp_path)
    (tmp_path / "a_cp_masks.png").unlink()
    assert pairs_in(tmp_path) == [(tmp_path / "a.tif", tmp_path / "all.json")]
    (tmp_path / "a.tif").rename(tmp_path / "b.tif")
    with raises("annotations.no_image"):
        pairs_in(tmp_path)


def test_geojson_of_several_planes_is_refused(tmp_path: Path) -> None:
    """QuPath exports the objects of all slices of a stack, which would all be drawn on one."""
    features: list[Any] = [
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [[[x, 1], [x + 4, 1], [x + 4, 5], [x, 1]]]}}
        for x in (1, 11)
    ]
    file = tmp_path / "a.geojson"
    for first, second, fits in (
        ({"z": 2, "t": 0}, {"c": -1, "z": 2, "t": 0}, True),
        ({"z": 2}, None, False),
        ({"t": 1}, {"t": 2}, False),
    ):
        features[0]["geometry"]["plane"], features[1]["geometry"]["plane"] = first, second
        file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        if fits:
            assert read_mask(file, file, (20, 20)).max() == 2
        else:
            with raises("geojson.planes"):
                read_mask(file, file, (20, 20))
