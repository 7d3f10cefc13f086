"""Slides: levels, scale, patches and tissue, by our TIFF reader and by OpenSlide."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from gcsa._utils.arrays import Array
from gcsa.images import tissue
from gcsa.images.planes import Plane
from gcsa.images.reader import open_image
from gcsa.images.slides import Roi, Slide, open_slide, open_window_source
from gcsa.images.windows import ArrayImage, CroppedImage, StoredImage, resampled
from tests.errors import raises
from tests.images.slide_files import TILE, halved, packed_tiles, tissue_picture, write_slide

PICTURE = tissue_picture(300, 420)
needs_openslide = pytest.mark.skipif(find_spec("openslide") is None, reason="OpenSlide is an extra")


@pytest.fixture(params=["plain", pytest.param("aperio", marks=needs_openslide)])
def file(request: Any, tmp_path: Path) -> Path:
    """A slide of three levels at half a micrometre a pixel."""
    path = tmp_path / ("x.svs" if request.param == "aperio" else "x.tif")
    write_slide(path, halved(PICTURE, 2), aperio=request.param == "aperio")
    return path


def test_levels_and_scale(file: Path) -> None:
    with open_slide(file, 3, in_memory=1) as slide:
        assert all(isinstance(level, StoredImage) for level in slide.levels)
        assert [level.shape for level in slide.levels] == [(300, 420), (150, 210), (75, 105)]
        assert slide.mpp == pytest.approx(0.5)
        assert slide.magnification == (20 if file.suffix == ".svs" else None)
        assert [slide.level_for(factor) for factor in (1, 1.9, 2, 3.9, 4, 50)] == [0, 0, 1, 1, 2, 2]
        for level, expected in zip(slide.levels, halved(PICTURE, 2), strict=True):
            pixels = level.window(0, 0, *level.shape)
            assert np.abs(pixels.astype(int) - expected)[:, : level.shape[1] // 2 - 8].mean() < 8, "JPEG"
            assert np.array_equal(level.window(60, 50, 75, 101), pixels[60:75, 50:101])
            assert level.percentiles(1, 99) == ArrayImage(pixels).percentiles(1, 99)
    with open_image(file, scanner=True) as image:
        assert image.is_pyramid


@pytest.mark.parametrize(("channel", "sample"), [("red", 0), ("blue", 2), (2, 1)])
def test_a_colour_is_a_channel_in_every_level(file: Path, channel: int | str, sample: int, tmp_path: Path) -> None:
    """Of fluorescence that is stored in colour: whole, in a region, in a level and in patches; of a file with all levels in memory too."""
    region = Roi(40, 100, 96, 80)
    for in_memory in (1, 10**7):
        with (
            open_slide(file, 3, in_memory) as slide,
            open_slide(file, 1, in_memory, Plane(channel)) as one,
        ):
            assert [level.shape for level in one.levels] == [level.shape for level in slide.levels]
            for level, colours in zip(one.levels, slide.levels, strict=True):
                assert np.array_equal(
                    level.window(0, 0, *level.shape)[..., 0], colours.window(0, 0, *level.shape)[..., sample]
                )
            for number in (0, 1):
                seen, image, origin = one.part(number, region)
                expected = slide.part(number, region)
                assert (origin, image.shape) == (expected.origin, expected.image.shape)
                assert np.array_equal(
                    seen.window(0, 0, *seen.shape)[..., 0], expected.seen.window(0, 0, *seen.shape)[..., sample]
                )
            assert np.array_equal(
                one.overview(1).window(0, 0, 9, 9)[..., 0], slide.overview(1).window(0, 0, 9, 9)[..., sample]
            )
            assert np.array_equal(one.patch(100, 40, 96, 48)[..., 0], slide.patch(100, 40, 96, 48)[..., sample])
    for plane in (Plane("violet"), Plane(4), Plane(z=2)):
        with raises("planes.choice"), open_slide(file, 1, plane=plane):
            pass


@needs_openslide
@pytest.mark.parametrize("level", [0, 1, 2])
def test_patches_are_what_openslide_reads(file: Path, level: int) -> None:
    import openslide

    with open_slide(file, 3) as slide, openslide.OpenSlide(str(file)) as reference:
        extent = 32 * 2**level
        assert slide.direct_level(extent, 32) == level
        for row, column in ((0, 0), (128, 64), (256, 384)):  # the last ends beyond the slide
            region = np.asarray(reference.read_region((column, row), level, (32, 32)))
            expected = np.where(region[..., 3:] > 0, region[..., :3], 255)
            assert np.abs(slide.patch(row, column, extent, 32).astype(int) - expected).max() <= 2


def test_between_levels_patches_are_resampled(file: Path) -> None:
    with open_slide(file, 3) as slide:
        assert slide.direct_level(96, 32) is None
        patch, level = slide.patch(96, 48, 96, 32), slide.levels[1]
        expected = resampled(level, (48, 24), (1.5, 1.5), (32, 32))
        assert np.abs(patch - expected).max() < 1
        assert np.abs(patch.astype(float).mean() - level.window(48, 24, 96, 72).mean()) < 1.5
        border = slide.patch(288, 0, 96, 32)
        assert (border[4:] == 255).all()
        assert (border[:3] < 255).any()


def test_a_patch_at_the_last_row_of_a_level() -> None:
    """Row 63 of the first level is in row 15 of the second, and in no row behind it."""
    black = [ArrayImage(np.zeros((side, side, 3), np.uint8)) for side in (64, 16)]
    patch = Slide(tuple(black)).patch(63, 63, 32, 8)
    assert (patch[0, 0] == 0).all()
    assert (patch[1:] == 255).all()


@pytest.mark.parametrize("kind", ["jpeg2000", "webp"])
def test_tiles_that_are_pictures(kind: str, tmp_path: Path) -> None:
    write_slide(tmp_path / "x.tif", [PICTURE], kind=kind)
    with open_window_source(tmp_path / "x.tif", 3, in_memory=1) as image:
        assert isinstance(image, StoredImage)
        assert np.array_equal(image.window(0, 0, *image.shape), PICTURE)
    tiles = packed_tiles(np.zeros((2 * TILE, TILE, 3), np.uint8), "WEBP")
    options: Any = dict(shape=(TILE // 2, TILE // 2, 3), dtype=np.uint8, tile=(TILE // 2, TILE // 2), photometric="rgb")
    tifffile.imwrite(tmp_path / "y.tif", iter([next(tiles)]), compression=50001, **options)
    with open_window_source(tmp_path / "y.tif", 3, 1) as image, raises("image.unreadable"):
        image.window(0, 0, 1, 1)


@pytest.mark.parametrize(
    ("options", "mpp"),
    [
        (
            {
                "ome": True,
                "metadata": {"axes": "YXS", "PhysicalSizeX": 250.0, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 0.25},
            },
            0.25,
        ),
        (
            {
                "ome": True,
                "metadata": {"axes": "YXS", "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.25},
            },
            0.25,
        ),
        (
            {"ome": True, "metadata": {"axes": "YXS", "PhysicalSizeX": 3.0, "PhysicalSizeXUnit": "reference frame"}},
            None,
        ),
        ({"resolution": (5000, 5000), "resolutionunit": "CENTIMETER"}, 2),
        ({"resolution": (72, 72), "resolutionunit": "INCH"}, None),
        ({"resolution": (28, 28), "resolutionunit": "CENTIMETER"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_scale_of_tiff(options: Any, mpp: float | None, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "x.tif", PICTURE, photometric="rgb", **options)
    with open_slide(tmp_path / "x.tif", 3) as slide:
        assert slide.mpp == (None if mpp is None else pytest.approx(mpp))
    with open_image(tmp_path / "x.tif", scanner=True) as image:
        assert not image.is_pyramid


def test_without_openslide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openslide", None)
    write_slide(tmp_path / "x.svs", [PICTURE], aperio=True)
    with raises("openslide.missing"), open_image(tmp_path / "x.svs", scanner=True):
        pass


@needs_openslide
def test_a_damaged_slide_is_a_sentence(tmp_path: Path) -> None:
    write_slide(tmp_path / "x.svs", [PICTURE], aperio=True)
    with tifffile.TiffFile(tmp_path / "x.svs") as content:
        offset = content.pages.first.dataoffsets[3]
    data = (tmp_path / "x.svs").read_bytes()
    (tmp_path / "x.svs").write_bytes(data[:offset] + bytes(200) + data[offset + 200 :])
    with open_slide(tmp_path / "x.svs", 3) as slide:
        slide.levels[0].window(0, 0, 10, 10)
        with raises("image.unreadable"):
            slide.levels[0].window(0, 0, 300, 420)


def whole(picture: Array) -> Slide:
    return Slide(tuple(ArrayImage(level) for level in halved(picture, 2)))


def test_tissue_is_found_and_glass_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tissue, "OVERVIEW", 105)
    monkeypatch.setattr(tissue, "BLOCK", 20)
    slide = whole(PICTURE)
    small = tissue.overview(slide)
    assert small.shape == (75, 105, 3)
    assert np.array_equal(small, slide.levels[2].window(0, 0, 75, 105)), "in blocks as at once"
    corners = tissue.grid(slide.shape, 50)
    assert len(corners) == 6 * 9
    assert corners[:2].tolist() == [[0, 0], [0, 50]]
    shares = tissue.shares(tissue.tissue(small), corners, 50, slide.shape)
    rows, columns = corners.T
    inside = (rows >= 100) & (columns <= 150)
    assert (shares[inside] > 0.9).all()
    assert (shares[(columns >= 250) | (rows == 0)] < 0.05).all()
    noise = np.random.default_rng(0).integers(238, 243, (60, 80, 3), np.uint8)
    assert not tissue.tissue(noise).any(), "of glass, which has no tissue"
    assert not tissue.tissue(np.full((9, 9, 3), 240, np.uint8)).any()


def test_parts(tmp_path: Path) -> None:
    """Of a level that does not divide the first, a rectangle grows to whole pixels of the level."""
    levels = [PICTURE, np.ascontiguousarray(PICTURE[::3, ::3][:99, :139])]
    slide = Slide(tuple(ArrayImage(level) for level in levels))
    seen, image, origin = slide.part(0, Roi(20, 30, 50, 40))
    assert (seen, origin) == (image, (30, 20))
    assert np.array_equal(image.window(0, 0, 40, 50), PICTURE[30:70, 20:70])
    seen, image, origin = slide.part(1, Roi(20, 30, 50, 40))
    assert (seen.shape, origin) == ((15, 18), (27, 18))
    assert np.array_equal(seen.window(0, 0, 15, 18), levels[1][9:24, 6:24])
    assert np.array_equal(image.window(0, 0, *image.shape), PICTURE[27:73, 18:73])
    assert slide.part(1, None) == (slide.levels[1], slide.levels[0], (0, 0))
    for level, roi, key in (
        (2, None, "level"),
        (0, Roi(400, 0, 21, 1), "roi"),
        (0, Roi(0, 300, 1, 1), "roi"),
    ):
        with raises(key):
            slide.part(level, roi)


def test_levels_that_are_not_read_have_no_number(tmp_path: Path) -> None:
    """Of levels in floats no windows are read: another level would be taken in their place."""
    with tifffile.TiffWriter(tmp_path / "x.tif") as writer:
        options: Any = dict(tile=(64, 64), photometric="minisblack")
        writer.write(PICTURE[..., 0].astype(np.float32), subifds=1, **options)
        writer.write(PICTURE[::2, ::2, 0].astype(np.float32), subfiletype=1, **options)
    with open_slide(tmp_path / "x.tif", 1) as slide:
        assert slide.part(0, None).origin == (0, 0)
        with raises("level.pyramid"):
            slide.part(1, None)


def test_a_part_of_a_large_picture_is_read_by_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_slide(tmp_path / "x.tif", [PICTURE], kind="webp")
    monkeypatch.setattr("gcsa.images.slides.IN_MEMORY", 1)
    with open_slide(tmp_path / "x.tif", 3, in_memory=1) as slide:
        part = slide.part(0, Roi(20, 130, 50, 40)).image
        expected = ArrayImage(PICTURE[130:170, 20:70])
        assert isinstance(part, CroppedImage)
        assert part.shape == expected.shape
        assert np.array_equal(part.window(3, 4, 20, 30), expected.window(3, 4, 20, 30))
        assert part.percentiles(1, 99.8) == expected.percentiles(1, 99.8)
