"""One picture of a stack, against what tifffile reads, whole and by windows."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa.images.planes import Plane
from gcsa.images.reader import open_image, read_picture
from gcsa.images.slides import open_window_source
from tests.errors import raises

RNG = np.random.default_rng(0)
STACK = RNG.integers(0, 4096, (2, 3, 5, 20, 30), dtype=np.uint16)
NAMES = ["DAPI", "488", "RFP", "phase", "phase"]
GREY: dict[str, Any] = {"photometric": "minisblack"}
KINDS: dict[str, dict[str, Any]] = {
    "ome": {"ome": True, "metadata": {"axes": "TZCYX", "Channel": {"Name": NAMES}}, **GREY},
    "ome in tiles": {"ome": True, "metadata": {"axes": "TZCYX"}, "tile": (16, 16), "compression": "zlib", **GREY},
    "imagej": {"imagej": True, "metadata": {"axes": "TZCYX", "Labels": NAMES * 6}},
}


def planes(path: Path, plane: Plane) -> Array:
    """A picture in grey, which is the same by windows."""
    picture = read_picture(path, 1, plane)
    with open_window_source(path, 1, 1, plane) as source:
        assert source.shape == picture.shape[:2]
        assert np.array_equal(source.window(3, 4, 11, 23), picture[3:11, 4:23])
    with open_window_source(path, 1, plane=plane) as source:
        assert np.array_equal(source.window(0, 0, *source.shape), picture)
    return picture[..., 0]


@pytest.mark.parametrize("kind", KINDS)
def test_five_axes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, STACK, **KINDS[kind])
    assert np.array_equal(planes(path, Plane(4, 2, 2)), STACK[1, 1, 3])
    assert np.array_equal(planes(path, Plane(1, "max", 1)), STACK[0, :, 0].max(0))
    with open_image(path, plane=Plane(1, "max", 1)) as image:
        assert image.slice_count == 3
    if kind != "ome in tiles":
        assert np.array_equal(planes(path, Plane("RFP", 3, 1)), STACK[0, 2, 2])
        assert np.array_equal(planes(path, Plane(488, 3, 1)), STACK[0, 2, 1])
        with raises("planes.choice"):
            read_picture(path, 1, Plane("phase", 1, 1))
    for plane, key in (
        (Plane(1, 1), "planes.needed"),
        (Plane(1, time=1), "planes.needed"),
        (Plane(z=1, time=1), "planes.needed"),
        (Plane(6, 1, 1), "planes.choice"),
        (Plane("Cy3", 1, 1), "planes.choice"),
        (Plane(1, 4, 1), "planes.choice"),
        (Plane(1, 1, 3), "planes.choice"),
    ):
        with raises(key):
            read_picture(path, 1, plane)


@pytest.mark.parametrize("options", [{"imagej": True, "metadata": {"axes": "CYX"}}, {"ome": True, **GREY}], ids=str)
def test_two_channels(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, STACK[0, 0, :2], **{"metadata": {"axes": "CYX"}, **options})
    assert np.array_equal(planes(path, Plane(2)), STACK[0, 0, 1])
    with raises("planes.needed", count=2):
        read_picture(path, 1, Plane())


@pytest.mark.parametrize("layout", ["contig", "separate"])
@pytest.mark.parametrize("count", [2, 5])
def test_channels_as_samples(layout: str, count: int, tmp_path: Path) -> None:
    values = STACK[0, 0, :count]
    stored = np.moveaxis(values, 0, -1) if layout == "contig" else values
    tifffile.imwrite(tmp_path / "x.tif", stored, planarconfig=layout, **GREY)
    assert np.array_equal(planes(tmp_path / "x.tif", Plane(2)), values[1])
    with raises("planes.needed", count=count):
        read_picture(tmp_path / "x.tif", 1, Plane())


def test_colours_are_colours_unless_one_is_chosen(tmp_path: Path) -> None:
    colours = RNG.integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
    for name, values, options in (
        ("z.tif", colours, {"imagej": True, "metadata": {"axes": "ZYXS"}}),
        ("c.tif", np.moveaxis(colours, 3, 1), {"imagej": True, "metadata": {"axes": "ZCYX"}}),
    ):
        tifffile.imwrite(tmp_path / name, values, **options)
        assert np.array_equal(read_picture(tmp_path / name, 3, Plane(z=2)), colours[1])
        assert np.array_equal(read_picture(tmp_path / name, 3, Plane(z="max")), colours.max(0))
        assert np.array_equal(planes(tmp_path / name, Plane(3, 1)), colours[0, ..., 2])
    tifffile.imwrite(tmp_path / "one.tif", colours[0], photometric="rgb")
    tifffile.imwrite(tmp_path / "grey.tif", colours[0, ..., 0])
    Image.fromarray(colours[0]).save(tmp_path / "one.png")
    for name in ("one.tif", "one.png"):
        assert np.array_equal(read_picture(tmp_path / name, 3, Plane(z="max", time=1)), colours[0])
        for channel in (2, "green"):
            assert np.array_equal(planes(tmp_path / name, Plane(channel)), colours[0, ..., 1])
        for plane in (Plane(4), Plane(z=2), Plane(time=2)):
            with raises("planes.choice"):
                read_picture(tmp_path / name, 3, plane)
    assert np.array_equal(planes(tmp_path / "grey.tif", Plane(1, 1, 1)), colours[0, ..., 0])
    with raises("planes.choice"):
        read_picture(tmp_path / "grey.tif", 1, Plane("red"))


@pytest.mark.parametrize("options", [{"metadata": None}, {}], ids=["pages", "tifffile"])
def test_pages_without_a_meaning_are_what_is_asked_for(options: dict[str, Any], tmp_path: Path) -> None:
    path, values = tmp_path / "x.tif", STACK[0, :, 0]
    tifffile.imwrite(path, values, **options, **GREY)
    for plane in (Plane(2), Plane(z=2), Plane(time=2)):
        assert np.array_equal(planes(path, plane), values[1])
    assert np.array_equal(planes(path, Plane(z="max")), values.max(0))
    for plane in (Plane(), Plane(1, 1)):
        with raises("planes.which"):
            read_picture(path, 1, plane)


def test_stacks_that_are_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "q.tif", STACK[0], **GREY)
    tifffile.imwrite(tmp_path / "cut.tif", STACK[0, 0], truncate=True, **GREY)
    tifffile.imwrite(tmp_path / "volume.tif", STACK[0, :, 0], tile=(16, 16, 16), volumetric=True, **GREY)
    for name, key in (
        ("q.tif", "image.axes_unknown"),
        ("cut.tif", "image.planes_not_pages"),
        ("volume.tif", "image.planes_not_pages"),
    ):
        with raises(key):
            read_picture(tmp_path / name, 1, Plane(z=1))


def test_other_files_that_a_stack_names_stay_closed(tmp_path: Path) -> None:
    """An OME-TIFF may name any file, also beyond its folder."""
    tifffile.imwrite(tmp_path / "other.tif", STACK[0, 0, 1], **GREY)
    tifffile.imwrite(tmp_path / "x.ome.tif", STACK[0, :2, 0], ome=True, metadata={"axes": "ZYX"}, **GREY)
    with tifffile.TiffFile(tmp_path / "x.ome.tif") as file:
        xml = file.ome_metadata or ""
    both = (
        '<TiffData IFD="0" PlaneCount="1"/><TiffData IFD="0" FirstZ="1" PlaneCount="1"><UUID FileName="other.tif">'
        "urn:uuid:11111111-1111-1111-1111-111111111111</UUID></TiffData>"
    )
    xml, replaced = re.subn(r"<TiffData .*?/>", both, xml)
    assert replaced
    path = tmp_path / "named.tif"
    tifffile.imwrite(path, STACK[0, 0, 0], description=xml, metadata=None, **GREY)
    with raises("stack.one_of_several"):
        read_picture(path, 1, Plane(z="max"))
    for plane in (Plane(), None):
        assert np.array_equal(read_picture(path, 1, plane)[..., 0], STACK[0, 0, 0])


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"ome": True, "metadata": {"PhysicalSizeX": 0.65, "PhysicalSizeY": 0.5}}, (0.5, 0.65)),
        (
            {"ome": True, "metadata": {"PhysicalSizeX": 650, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 0.5}},
            (0.5, 0.65),
        ),
        ({"ome": True, "metadata": {"PhysicalSizeX": 1, "PhysicalSizeXUnit": "pixel", "PhysicalSizeY": 1}}, None),
        ({"ome": True, "metadata": {"PhysicalSizeX": 0.65}}, None),
        ({"imagej": True, "resolution": (4, 2), "metadata": {"unit": "um"}}, (0.5, 0.25)),
        ({"imagej": True, "resolution": (4, 2), "metadata": {"unit": "\\u00B5m"}}, (0.5, 0.25)),
        ({"imagej": True, "resolution": (4, 2), "metadata": {"unit": "mm"}}, (500, 250)),
        ({"imagej": True, "resolution": (4, 2), "metadata": {"unit": "pixel"}}, None),
        ({"resolution": (300, 300), "resolutionunit": "inch"}, None),
    ],
    ids=str,
)
def test_pixel_size(options: dict[str, Any], size: tuple[float, float] | None, tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, STACK[0, 0, 0], **options)
    with open_image(path, plane=Plane()) as image:
        assert image.upright_pixel_size == (None if size is None else pytest.approx(size))
    tifffile.imwrite(path, STACK[0, 0, 0], extratags=[(274, "H", 1, 6, True)], **options)
    with open_image(path, plane=Plane()) as image:
        assert image.upright_pixel_size == (None if size is None else pytest.approx(size[::-1]))
