"""A TIFF file read a window at a time is what it is when it is read whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa.images.intensity import percentiles
from gcsa.images.windows import ArrayImage, TiffImage, open_window_source

WINDOWS = ((0, 0, 70, 90), (15, 17, 16, 18), (16, 16, 32, 48), (60, 80, 70, 90), (5, 0, 69, 90))


def picture(channels: int, dtype: Any = np.uint8) -> Array:
    values = np.random.default_rng(0).integers(0, 200, (70, 90, channels)).astype(dtype)
    return values * dtype(200) if dtype == np.uint16 else values


def written(path: Path, values: Array, **options: Any) -> Path:
    tifffile.imwrite(path, values[..., 0] if values.shape[2] == 1 else values, **options)
    return path


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rowsperstrip": 16},
        {"tile": (16, 32)},
        {"tile": (32, 16), "compression": "zlib"},
        {"compression": "zlib", "predictor": 2},
        {"byteorder": ">"},
        {"byteorder": ">", "bigtiff": True, "tile": (16, 16)},
    ],
    ids=str,
)
def test_windows_are_parts_of_the_whole(dtype: Any, channels: int, options: dict[str, Any], tmp_path: Path) -> None:
    photometric = "minisblack" if channels == 1 else "rgb"
    if channels == 4:
        options = {**options, "extrasamples": ["unassalpha"]}
    path = written(tmp_path / "x.tif", picture(channels, dtype), photometric=photometric, **options)
    with open_window_source(path, 3) as whole, open_window_source(path, 3, in_memory=70 * 90 - 1) as in_parts:
        assert isinstance(whole, ArrayImage)
        assert isinstance(in_parts, TiffImage)
        assert in_parts.shape == whole.shape == (70, 90)
        for window in WINDOWS:
            assert np.array_equal(in_parts.window(*window), whole.window(*window)), window
            assert in_parts.window(*window).dtype == dtype
        for shares in ((1.0, 99.8), (0.0, 100.0), (50.0, 50.1)):
            assert in_parts.percentiles(*shares) == whole.percentiles(*shares)


def test_a_picture_of_one_level_has_its_extremes_as_percentiles(tmp_path: Path) -> None:
    values = np.zeros((70, 90, 1), np.uint8)
    values[0, 0] = 9
    path = written(tmp_path / "x.tif", values)
    with open_window_source(path, 1, in_memory=1) as source:
        assert source.percentiles(1.0, 99.8) == (0, 9) == ArrayImage(values).percentiles(1.0, 99.8)


@pytest.mark.parametrize(
    ("values", "options", "channels", "sentence"),
    [
        (
            np.zeros((70, 90, 1), np.float32),
            {},
            3,
            "holds float32 values, and is too large for anything but 8 and 16 bits",
        ),
        (
            np.zeros((70, 90, 5), np.uint8),
            {"photometric": "minisblack", "planarconfig": "contig"},
            3,
            "holds 5 channels",
        ),
        (np.zeros((70, 90, 3), np.uint8), {"photometric": "rgb"}, 1, "holds 3 channels where the weights take 1"),
        (
            np.zeros((70, 90, 1), np.uint8),
            {"photometric": "miniswhite"},
            3,
            "is neither grey, with black as zero, nor RGB",
        ),
        (np.zeros((3, 70, 90, 1), np.uint8), {"photometric": "minisblack"}, 3, "holds several pictures"),
    ],
)
def test_refused(values: Array, options: dict[str, Any], channels: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, values[..., 0] if values.shape[-1] == 1 else values, **options)
    with pytest.raises(ValueError, match=sentence) as error, open_window_source(path, channels, in_memory=1):
        pass
    assert str(path) in str(error.value)


def test_what_is_not_compressed_is_read_by_the_pixel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the strip is in which it lies: many programs write one."""
    path = written(tmp_path / "x.tif", picture(3), photometric="rgb")
    with open_window_source(path, 3, in_memory=1) as source:
        assert isinstance(source, TiffImage)
        assert source.size == (70, 90)
        sizes, read = [], tifffile.FileHandle.read
        monkeypatch.setattr(tifffile.FileHandle, "read", lambda handle, size: sizes.append(size) or read(handle, size))
        source.window(5, 7, 9, 17)
    assert sizes == [30] * 4


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_percentiles_are_counted_in_parts(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcsa.images.windows.COUNTED", 1000)
    values = picture(3, dtype)
    for shares in ((1.0, 99.8), (0.0, 100.0), (50.0, 50.1)):
        assert ArrayImage(values).percentiles(*shares) == percentiles(values, *shares)
    fractions = values / np.float32(7)
    assert ArrayImage(fractions).percentiles(1.0, 99.8) == percentiles(fractions)


def test_large_parts_that_are_compressed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcsa.images.windows.MOST_AT_ONCE", 70 * 90 - 1)
    path = written(tmp_path / "x.tif", picture(3), photometric="rgb", compression="zlib", rowsperstrip=70)
    with (
        pytest.raises(ValueError, match=r"x.tif is compressed in parts of 70 x 90 pixels"),
        open_window_source(path, 3, 1),
    ):
        pass


def test_a_compression_that_needs_a_package(tmp_path: Path) -> None:
    Image.fromarray(picture(3)).save(tmp_path / "x.tif", compression="tiff_lzw")
    with open_window_source(tmp_path / "x.tif", 3) as source:
        assert np.array_equal(source.window(0, 0, 70, 90), picture(3))
    try:
        import imagecodecs  # noqa: F401
    except ImportError:
        with (
            pytest.raises(
                ValueError, match="is compressed by LZW, which only the package imagecodecs reads here: install it"
            ),
            open_window_source(tmp_path / "x.tif", 3, in_memory=1),
        ):
            pass


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiles_that_a_file_leaves_out_are_black(compression: str | None, tmp_path: Path) -> None:
    values = picture(1)
    values[16:32, 32:48] = 0
    parts = [values[y : y + 16, x : x + 16] for y in range(0, 64, 16) for x in range(0, 80, 16)]
    left_out = (part if part.any() else None for part in parts)
    options: Any = dict(shape=(64, 80, 1), dtype=np.uint8, tile=(16, 16), compression=compression)
    tifffile.imwrite(tmp_path / "x.tif", left_out, **options)
    with open_window_source(tmp_path / "x.tif", 1, in_memory=1) as source:
        assert np.array_equal(source.window(0, 0, 64, 80), values[:64, :80])


def test_planes_behind_one_page_are_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "x.tif", np.zeros((5, 70, 90), np.uint8), truncate=True)
    with (
        pytest.raises(
            ValueError, match=r"x.tif holds 5 planes or channels \(5 x 70 x 90 as QYX\): save one plane a file"
        ),
        open_window_source(tmp_path / "x.tif", 1, in_memory=1),
    ):
        pass


def test_an_orientation_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tif", picture(3), photometric="rgb", extratags=[(274, "H", 1, 6, True)])
    with (
        pytest.raises(ValueError, match=r"x.tif is stored turned or mirrored"),
        open_window_source(path, 3, in_memory=1),
    ):
        pass


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_damaged_pixels_are_a_sentence(compression: str | None, damage: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.tif", picture(3), photometric="rgb", tile=(16, 16), compression=compression)
    with tifffile.TiffFile(path) as file:
        offset = file.pages.first.dataoffsets[20]
    data = path.read_bytes()
    path.write_bytes(data[: offset + 5] if damage == "cut off" else data[:offset] + 50 * b"\xff" + data[offset + 50 :])
    with open_window_source(path, 3, in_memory=1) as source:
        if compression is None and damage == "overwritten":  # which are pixels like others
            source.window(0, 0, 70, 90)
            return
        with pytest.raises(ValueError, match=r"x.tif cannot be read as an image \(.*\): remove or replace it"):
            source.window(0, 0, 70, 90)


def test_channels_in_planes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, np.zeros((3, 70, 90), np.uint8), photometric="rgb", planarconfig="separate")
    with pytest.raises(ValueError, match="holds each channel by itself"), open_window_source(path, 3, in_memory=1):
        pass


def test_a_truncated_file_is_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tif", picture(3), photometric="rgb")
    path.write_bytes(path.read_bytes()[:9])
    with pytest.raises(ValueError, match=r"x.tif cannot be read as an image"), open_window_source(path, 3):
        pass
