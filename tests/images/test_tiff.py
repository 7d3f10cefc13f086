"""Every kind of TIFF is read as tifffile reads it, whole and by windows, in 8 bits and in its own depth."""

import itertools
import lzma
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.files import BoundedFile
from gcsa.images.intensity import percentiles
from gcsa.images.reader import (
    count_pages,
    image_size,
    read_grey,
    read_image,
    read_labels,
    read_picture,
)
from gcsa.images.slides import open_slide, open_window_source
from gcsa.images.windows import ArrayImage, StoredImage
from tests.errors import raises
from tests.fuzzing import sealed
from tests.images.slide_files import halved, tissue_picture

HEIGHT, WIDTH = 21, 37
COMPRESSIONS = {"none": 1, "deflate": 8, "lzw": 5, "packbits": 32773}
COLOURS = {  # name: photometric, samples, planar configuration, extra samples
    "grey": ("minisblack", 1, None, ()),
    "white is 0": ("miniswhite", 1, None, ()),
    "rgb": ("rgb", 3, "contig", ()),
    "rgb planar": ("rgb", 3, "separate", ()),
    "rgba": ("rgb", 4, "contig", ("unassalpha",)),
    "rgba planar": ("rgb", 4, "separate", ("unassalpha",)),
    "rgba premultiplied": ("rgb", 4, "contig", ("assocalpha",)),
    "palette": ("palette", 1, None, ()),
    "cmyk": ("separated", 4, "contig", ()),
}
DTYPES = {"1": np.bool_, "8": np.uint8, "16": np.uint16, "32f": np.float32}
BY_COLOUR = {"32f": ("grey", "rgb", "rgb planar", "rgba", "rgba planar"), "1": ("grey", "white is 0")}
LAYOUTS = [(depth, colour) for depth in DTYPES for colour in BY_COLOUR.get(depth, COLOURS)]
RNG = np.random.default_rng(0)


def picture(path: Path) -> Array:
    return read_picture(path, 3)


def brightness(path: Path) -> Image.Image:
    return read_image(path, 3)


def write(path: Path, depth: str, colour: str, **options: Any) -> tuple[Array, Array | None]:
    """Writes a TIFF and returns what tifffile reads from it, (H, W, samples), and its colour map."""
    photometric, samples, planar, extra = COLOURS[colour]
    values = RNG.random((HEIGHT, WIDTH, samples))
    values = values > 0.5 if depth == "1" else values if depth == "32f" else values * np.iinfo(DTYPES[depth]).max
    values = values.astype(DTYPES[depth])
    if extra == ("assocalpha",):
        values[..., :3] = values[..., :3] * (values[..., 3:] / np.iinfo(values.dtype).max)
    colours = (
        RNG.integers(0, 65536, (3, 256 if depth == "8" else 65536), np.uint16) if photometric == "palette" else None
    )
    stored = values[..., 0] if samples == 1 else np.moveaxis(values, 2, 0) if planar == "separate" else values
    compression = options.pop("compression", "none")
    tifffile.imwrite(
        path, stored, photometric=photometric, planarconfig=planar, extrasamples=extra, colormap=colours,
        compression=COMPRESSIONS[compression], **options,
    )  # fmt: skip
    with tifffile.TiffFile(path) as file:
        read = file.asarray()
    assert np.array_equal(read, stored)
    return values, colours


def expected(values: Array, colours: Array | None, depth: str, colour: str) -> tuple[Array, Array]:
    """Of values as tifffile reads them: the picture at full depth (H, W, 1 or 3), and its brightness on 0..255 in float64."""
    white = 1 if depth in ("1", "32f") else np.iinfo(values.dtype).max
    if colour == "white is 0":
        values = ~values if depth == "1" else white - values
    if colours is not None:
        values, white = (colours.T[values[..., 0]] >> 8).astype(np.uint8), 255
    if colour == "cmyk":
        paper = white - values.astype(float)
        values = (paper[..., :3] * paper[..., 3:] / white).round().astype(values.dtype)
    picture, level = values[..., :3], values[..., :3] * (255 / white)
    if colour.startswith("rgba"):
        share = values[..., 3:] / white
        level = (level if colour == "rgba premultiplied" else level * share) + 255 * (1 - share)
    return (picture.astype(np.uint8) if depth == "1" else picture), level


@pytest.mark.parametrize(("depth", "colour"), LAYOUTS, ids=str)
def test_every_combination_is_what_tifffile_reads(depth: str, colour: str, tmp_path: Path) -> None:
    """400 files: bit depth, photometric, planar configuration, alpha, compression, byte order and BigTIFF."""
    assert len(LAYOUTS) * len(COMPRESSIONS) * 2 * 2 == 400
    path = tmp_path / "x.tif"
    for compression, byteorder, big in itertools.product(COMPRESSIONS, "<>", (False, True)):
        case = (compression, byteorder, big)
        options = {"compression": compression, "byteorder": byteorder, "bigtiff": big, "rowsperstrip": 8}
        stored, colours = write(path, depth, colour, **options)
        full_depth, level = expected(stored, colours, depth, colour)
        grey = level[..., 0] if level.shape[2] == 1 else level @ [0.299, 0.587, 0.114]
        rounded = np.repeat(level, 4 - level.shape[2], 2)[..., :3].round()
        assert image_size(path) == (WIDTH, HEIGHT), case
        full = read_picture(path, 3)
        assert full.dtype == full_depth.dtype, case
        assert np.array_equal(full, np.broadcast_to(full_depth, full.shape)), case
        luma = full_depth @ [0.299, 0.587, 0.114] if full_depth.shape[2] > 1 else full_depth[..., 0]
        off = [np.abs(read_picture(path, 1)[..., 0] - luma).max(), np.abs(read_grey(path) - grey).max()]
        off += [
            np.abs(np.asarray(read_image(path, 3)) - rounded).max(),
            np.abs(np.asarray(read_image(path, 1)) - grey).max(),
        ]
        most = [0.5001, 1e-3 if depth in ("16", "32f") and colours is None else 1.5, float("rgba" in colour), 1.5]
        assert np.less_equal(off, most).all(), (case, off)
        if depth != "32f":
            with open_window_source(path, 3, in_memory=1) as source:
                assert isinstance(source, StoredImage)
                assert np.array_equal(source.window(5, 3, 18, 20), full[5:18, 3:20]), case
        if colour in ("grey", "palette") and depth != "32f":
            assert np.array_equal(read_labels(path), stored[..., 0]), case


@pytest.mark.parametrize("bits", [2, 4, 12])
def test_packed_bits(bits: int, tmp_path: Path) -> None:
    """Written byte by byte, since tifffile packs no bits by itself."""
    values = RNG.integers(0, 1 << bits, (8, 10), np.uint16)
    rows = np.packbits((values[..., None] >> np.arange(bits)[::-1] & 1).astype(np.uint8).reshape(8, -1), axis=1)
    tifffile.imwrite(tmp_path / "x.tif", rows, photometric="minisblack")
    with tifffile.TiffFile(tmp_path / "x.tif", mode="r+") as file:
        file.pages.first.tags[256].overwrite(10)
        file.pages.first.tags[258].overwrite(bits)
    assert np.array_equal(read_labels(tmp_path / "x.tif"), values)
    assert np.abs(read_grey(tmp_path / "x.tif") - values * (255 / ((1 << bits) - 1))).max() < 1e-3


@pytest.mark.parametrize("kind", ["jpeg", "group3", "group4", "tiff_lzw"])
def test_what_libtiff_writes(kind: str, tmp_path: Path) -> None:
    """Compressions of images, with the predictor of floats: as Pillow reads the whole file."""
    levels = Image.fromarray(np.indices((80, 90)).sum(0).astype(np.uint8))
    image = {"jpeg": levels.convert("RGB"), "tiff_lzw": Image.fromarray(np.asarray(levels) / np.float32(7))}.get(
        kind, levels.convert("1")
    )
    image.save(tmp_path / "x.tif", compression=kind, tiffinfo={317: 3} if kind == "tiff_lzw" else {})
    with Image.open(tmp_path / "x.tif") as whole:
        assert np.array_equal(
            read_picture(tmp_path / "x.tif", 3), np.asarray(whole).reshape(80, 90, -1) * np.ones(3, np.uint8)
        )


@pytest.mark.parametrize(
    ("shape", "options", "key"),
    [
        ((5, 64, 62), {}, "image.planes"),
        ((5, 64, 62), {"truncate": True}, "image.planes"),
        ((2, 3, 64, 62), {"photometric": "minisblack"}, "image.planes"),
        ((4, 64, 62), {"imagej": True, "metadata": {"axes": "CYX"}}, "image.channels"),
        ((2, 64, 62), {"ome": True, "metadata": {"axes": "CYX"}}, "image.channels"),
        ((64, 62, 5), {"photometric": "minisblack", "planarconfig": "contig"}, "image.channels"),
        ((64, 62, 2), {"photometric": "minisblack", "planarconfig": "contig"}, "image.channels"),
        ((64, 62, 3), {"photometric": "cielab"}, "image.colours"),
    ],
    ids=str,
)
def test_stacks_and_channels_are_refused(shape: tuple[int, ...], options: Any, key: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, np.ones(shape, np.uint16), **options)
    for read in (picture, brightness, image_size, read_grey):
        with raises(key):
            read(path)
    with raises(key), open_window_source(path, 3, in_memory=1):
        pass


def test_pages_thumbnails_and_channels_first(tmp_path: Path) -> None:
    """Two pages are refused, unless one says that it is a thumbnail; three channels are colours wherever they stand."""
    values = RNG.integers(0, 4096, (HEIGHT, WIDTH, 3), np.uint16)
    for subfile, name in ((0, "pages.tif"), (1, "thumbnail.tif")):
        with tifffile.TiffWriter(tmp_path / name) as file:
            file.write(values, photometric="rgb")
            file.write(values[::2, ::2], photometric="rgb", subfiletype=subfile)
    with raises("image.several"):
        read_picture(tmp_path / "pages.tif", 3)
    tifffile.imwrite(tmp_path / "imagej.tif", np.moveaxis(values, 2, 0), imagej=True, metadata={"axes": "CYX"})
    tifffile.imwrite(tmp_path / "ome.tif", np.moveaxis(values, 2, 0), ome=True, metadata={"axes": "CYX"})
    for name in ("thumbnail.tif", "imagej.tif", "ome.tif"):
        assert np.array_equal(read_picture(tmp_path / name, 3), values), name
        with open_window_source(tmp_path / name, 3, in_memory=1) as source:
            assert np.array_equal(source.window(3, 4, 9, 11), values[3:9, 4:11]), name


def test_other_widths_of_numbers(tmp_path: Path) -> None:
    values = RNG.integers(0, 4096, (7, 9))
    for dtype in (np.int32, np.uint32, np.int64, np.float16, np.float64):
        tifffile.imwrite(tmp_path / "x.tif", values.astype(dtype))
        read = read_picture(tmp_path / "x.tif", 1)
        assert read.dtype == (np.float32 if np.dtype(dtype).kind == "f" else np.uint16)
        assert np.array_equal(read[..., 0], values.astype(dtype))
        if np.dtype(dtype).kind != "f":
            assert np.array_equal(read_labels(tmp_path / "x.tif"), values)


WHITE_IS_0 = {"photometric": "miniswhite"}


@pytest.mark.parametrize(
    ("read", "values", "options", "key"),
    [
        (picture, np.array([[1, np.nan]], np.float32), {}, "image.not_finite"),
        (picture, np.array([[1, -1]], np.int16), {}, "image.beyond_16_bits"),
        (picture, np.array([[1, 70000]], np.uint32), {}, "image.beyond_16_bits"),
        (picture, np.ones((2, 2), np.complex64), {}, "image.beyond_16_bits"),
        (brightness, np.ones((7, 9), np.float32), WHITE_IS_0, "image.no_range"),
        (read_labels, np.ones((7, 9, 3), np.uint8), {"photometric": "rgb"}, "labels.colour"),
        (read_labels, np.ones((7, 9), np.float32), {}, "labels.type"),
        (read_labels, np.full((7, 9), -5, np.int16), {}, "labels.range"),
        (read_labels, np.full((7, 9), 2**31, np.uint32), {}, "labels.range"),
        (read_labels, np.ones((7, 9), np.bool_), WHITE_IS_0, "image.white_is_zero"),
        (read_labels, np.ones((7, 9), np.uint8), WHITE_IS_0, "image.white_is_zero"),
    ],
)
def test_values_that_are_refused(read: Any, values: Array, options: Any, key: str, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "x.tif", values, **options)
    with raises(key):
        read(tmp_path / "x.tif")


WINDOWS = ((0, 0, 70, 90), (15, 17, 16, 18), (16, 16, 32, 48), (60, 80, 70, 90), (5, 0, 69, 90))
TILED: list[dict[str, Any]] = [
    {}, {"rowsperstrip": 16}, {"tile": (16, 32)}, {"tile": (32, 16), "compression": "zlib"},
    {"compression": "zlib", "predictor": 2}, {"byteorder": ">", "bigtiff": True, "tile": (16, 16), "predictor": 2, "compression": "zlib"},
]  # fmt: skip


def large(channels: int, dtype: Any = np.uint8) -> Array:
    return RNG.integers(0, np.iinfo(dtype).max, (70, 90, channels), dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("options", TILED, ids=str)
def test_windows_are_parts_of_the_whole(dtype: Any, channels: int, options: dict[str, Any], tmp_path: Path) -> None:
    path, values = tmp_path / "x.tif", large(channels, dtype)
    tifffile.imwrite(path, values.squeeze(), photometric="rgb" if channels == 3 else "minisblack", **options)
    for taken in (1, 3):
        with open_window_source(path, taken) as whole, open_window_source(path, taken, in_memory=70 * 90 - 1) as parts:
            assert isinstance(whole, ArrayImage)
            assert isinstance(parts, StoredImage)
            assert parts.shape == whole.shape == (70, 90)
            for window in WINDOWS:
                assert np.array_equal(parts.window(*window), whole.window(*window)), window
                assert parts.window(*window).dtype == dtype
            for shares in ((1.0, 99.8), (0.0, 100.0), (50.0, 50.1)):
                assert parts.percentiles(*shares) == whole.percentiles(*shares)
        if taken == 3:
            assert np.array_equal(whole.window(0, 0, 70, 90), np.broadcast_to(values, (70, 90, 3)))


def test_percentiles_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gcsa.images.windows.COUNTED", 1000)
    values = np.zeros((70, 90, 1), np.uint8)
    values[0, 0] = 9
    tifffile.imwrite(tmp_path / "x.tif", values[..., 0])
    with open_window_source(tmp_path / "x.tif", 1, in_memory=1) as source:
        assert source.percentiles(1.0, 99.8) == (0, 9) == ArrayImage(values).percentiles(1.0, 99.8)
    fractions = large(3) / np.float32(7)
    assert ArrayImage(fractions).percentiles(1.0, 99.8) == percentiles(fractions)


@pytest.mark.parametrize("side", [70, 16])
def test_a_window_reads_its_own_pixels(side: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the strip is that holds it: many programs write one."""
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, large(3), photometric="rgb", rowsperstrip=side)
    with open_window_source(path, 3, in_memory=1) as source:
        sizes, read = [], BoundedFile.read
        monkeypatch.setattr(BoundedFile, "read", lambda file, size=-1: sizes.append(size) or read(file, size))
        source.window(5, 7, 9, 17)
    assert sizes == [30] * 4


@pytest.mark.parametrize(
    ("dtype", "options", "key"),
    [
        (np.float32, {}, "image.too_deep"),
        (np.uint8, {"extratags": [(274, "H", 1, 6, True)]}, "image.rotated"),
        (np.uint8, {"compression": "zlib", "rowsperstrip": 70}, "image.chunks"),
    ],
)
def test_large_files_that_are_refused(
    dtype: Any, options: Any, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcsa.images.windows.MAX_SEGMENT", 70 * 90 - 1)
    tifffile.imwrite(tmp_path / "x.tif", np.ones((70, 90), dtype), **options)
    with raises(key), open_window_source(tmp_path / "x.tif", 3, in_memory=1):
        pass


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiles_that_a_file_leaves_out_are_black(compression: str | None, tmp_path: Path) -> None:
    values = large(1)[:64, :80]
    values[16:32, 32:48] = 0
    tiles = [values[y : y + 16, x : x + 16] for y in range(0, 64, 16) for x in range(0, 80, 16)]
    options: Any = dict(shape=values.shape, dtype=np.uint8, tile=(16, 16), compression=compression)
    tifffile.imwrite(tmp_path / "x.tif", (tile if tile.any() else None for tile in tiles), **options)
    with open_window_source(tmp_path / "x.tif", 1, in_memory=1) as source:
        assert np.array_equal(source.window(0, 0, 64, 80), values)


@pytest.mark.parametrize("compression", ["none", "deflate", "lzw", "packbits"])
@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_damaged_pixels_are_a_sentence(compression: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    write(path, "8", "rgb", compression=compression, rowsperstrip=8)
    with tifffile.TiffFile(path) as file:
        offset = file.pages.first.dataoffsets[1]
    data = path.read_bytes()
    path.write_bytes(
        data[: offset + 5] if damage == "cut off" else data[:offset] + 500 * b"\xff" + data[offset + 500 :]
    )
    with open_window_source(path, 3, in_memory=1) as source:
        if compression == "none" and damage == "overwritten":  # pixels like others
            source.window(0, 0, HEIGHT, WIDTH)
            return
        with raises("image.unreadable"):
            source.window(0, 0, HEIGHT, WIDTH)


def replace_strip(path: Path, data: bytes) -> None:
    """Puts `data` in the place of the only strip of a file."""
    with tifffile.TiffFile(path, mode="r+") as file:
        page, end = file.pages.first, file.filehandle.size
        page.tags[273].overwrite(end)
        page.tags[279].overwrite(len(data))
        file.filehandle.seek(end)
        file.filehandle.write(data)


ZEROS = bytes(1 << 27)
BOMBS = {
    "zlib": lambda: zlib.compress(ZEROS, 1),
    "lzma": lambda: lzma.compress(ZEROS[: 1 << 25], preset=0),
    "zstd": lambda: imagecodecs.zstd_encode(ZEROS),
    "lzw": lambda: imagecodecs.lzw_encode(ZEROS[: 1 << 20]),
    "packbits": lambda: b"\x81\x00" * (1 << 19),
}


@pytest.mark.parametrize("compression", BOMBS)
def test_a_strip_that_expands_without_end(compression: str, tmp_path: Path) -> None:
    """No more is decompressed than the strip has place for: 64 pixels of it, or a refusal."""
    path, data = tmp_path / "x.tif", BOMBS[compression]()
    tifffile.imwrite(path, np.ones((8, 8), np.uint8), compression=compression)
    replace_strip(path, data)
    with suppress(UserError), sealed(tmp_path, memory=len(data) + (1 << 25)):
        assert not read_picture(path, 1).any()


HUGE = np.zeros((5000, 5000), np.uint8)
IMAGES = {
    "jpeg": lambda: imagecodecs.jpeg_encode(HUGE),
    "jpeg2000": lambda: imagecodecs.jpeg2k_encode(HUGE, codecformat="j2k"),
    "webp": lambda: imagecodecs.webp_encode(np.repeat(HUGE[..., None], 3, 2)),
}


@pytest.mark.parametrize("compression", IMAGES)
def test_a_tile_that_states_more_pixels_than_it_has_place_for(compression: str, tmp_path: Path) -> None:
    path, colour = tmp_path / "x.tif", compression == "webp"
    values = np.ones((16, 16, 3) if colour else (16, 16), np.uint8)
    tifffile.imwrite(path, values, compression=compression, photometric="rgb" if colour else "minisblack")
    replace_strip(path, IMAGES[compression]())
    with raises("image.unreadable"), sealed(tmp_path, memory=1 << 28):
        read_picture(path, 3)


def jpeg_tiles(picture: Array) -> Iterator[bytes]:
    """The tiles of a picture in YCbCr, of which two of three channels have a quarter of the pixels."""
    whole = np.pad(picture, [(0, -side % 64) for side in picture.shape[:2]] + [(0, 0)], mode="edge")
    for y, x in itertools.product(range(0, len(whole), 64), range(0, whole.shape[1], 64)):
        tile = np.ascontiguousarray(whole[y : y + 64, x : x + 64])
        yield imagecodecs.jpeg_encode(tile, level=90, colorspace="RGB", outcolorspace="YCBCR", subsampling=(2, 2))


@pytest.mark.parametrize(
    "stated",
    [{"photometric": "ycbcr", "subsampling": (2, 2)}, {"photometric": "ycbcr", "subsampling": (1, 1)}, {"photometric": "rgb"}],
    ids=["subsampled", "stated as not subsampled", "stated as RGB"],
)  # fmt: skip
def test_ome_tiff_as_qupath_writes_it(stated: dict[str, Any], tmp_path: Path) -> None:
    """A pyramid in SubIFDs, in tiles of subsampled JPEG, whose tags may state other colours and sampling than the tiles have."""
    path, levels = tmp_path / "x.ome.tif", halved(tissue_picture(150, 210), 1)
    with tifffile.TiffWriter(path, ome=True, bigtiff=True) as file:
        for i, level in enumerate(levels):
            about = {"axes": "YXS", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
            first: Any = {"subfiletype": 1} if i else {"subifds": 1, "metadata": about}
            shape: Any = dict(shape=level.shape, dtype=np.uint8, tile=(64, 64), compression="jpeg")
            file.write(jpeg_tiles(level), **shape, **stated, **first)
    with tifffile.TiffFile(path) as file:
        expected = [level.asarray() for level in file.series[0].levels]
    with open_window_source(path, 3) as whole:
        assert np.abs(whole.window(0, 0, 150, 210).astype(int) - expected[0]).max() <= 2
    with open_slide(path, 3, in_memory=1) as slide:
        assert (slide.mpp, slide.stored, len(slide.levels)) == (0.5, 2, 2)
        for level, values, original in zip(slide.levels, expected, levels, strict=True):
            window = level.window(5, 60, 70, 105).astype(int)
            assert np.abs(window - values[5:70, 60:105]).max() <= 2
            assert np.abs(window - original[5:70, 60:105]).mean() < 6, "JPEG"


def test_the_pages_of_a_document(tmp_path: Path) -> None:
    """In the order of the file, whatever their sizes and modes, without thumbnails; a stack has no pages."""
    grey = RNG.integers(0, 255, (2, HEIGHT, WIDTH), np.uint8)
    colour = RNG.integers(0, 255, (9, 8, 3), np.uint8)
    with tifffile.TiffWriter(tmp_path / "document.tif") as file:
        for values, subfile in ((grey[0], 0), (grey[0, ::2, ::2], 1), (colour, 0), (grey[1], 0)):
            file.write(values, metadata=None, subfiletype=subfile)
    assert count_pages(tmp_path / "document.tif") == 3
    for number, values in enumerate((grey[0], colour, grey[1]), 1):
        assert image_size(tmp_path / "document.tif", page=number) == values.shape[1::-1]
        read = np.asarray(read_image(tmp_path / "document.tif", 3, page=number))
        assert np.array_equal(read, values if values.ndim == 3 else values[..., None].repeat(3, -1))
    tifffile.imwrite(tmp_path / "stack.tif", grey, imagej=True)
    for name in ("stack.tif", "missing.tif"):
        assert count_pages(tmp_path / name) == 0


def test_a_page_that_was_cut_off_is_not_left_out(tmp_path: Path) -> None:
    """Wherever the file ends before the last page does."""
    pages = [Image.fromarray(RNG.integers(0, 255, (HEIGHT, WIDTH), np.uint8)) for _ in range(3)]
    pages[0].save(tmp_path / "document.tif", save_all=True, append_images=pages[1:], compression="tiff_lzw")
    whole = (tmp_path / "document.tif").read_bytes()
    path = tmp_path / "cut.tif"

    def read_all() -> None:
        count = count_pages(path)
        for number in range(1, count + 1) or [None]:
            read_image(path, 3, page=number)

    with tifffile.TiffFile(tmp_path / "document.tif") as document:
        third, last = document.pages[2].offset, document.pages.next_page_offset
    for end in (*range(8, last, 23), third, last):
        path.write_bytes(whole[:end])
        with pytest.raises(UserError, match=r"cut\.tif"):
            read_all()


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [(np.float32, "3.4028234663852886e+38"), (np.float32, "nan"), (np.uint16, "65535"), (np.int32, "-9999")],
)
@pytest.mark.parametrize("samples", [1, 3])
def test_no_data_of_gdal(dtype: Any, nodata: str, samples: int, tmp_path: Path) -> None:
    """Such pixels are transparent: white in 8 bits, and 0 where values are not scaled; the others are as without the tag."""
    values = np.random.default_rng(0).integers(1, 200, (6, 7, samples)).astype(dtype)
    kind = "rgb" if samples == 3 else "minisblack"
    tifffile.imwrite(tmp_path / "whole.tif", values.squeeze(), photometric=kind)
    holed = values.copy()
    holed[2, 3:5] = np.dtype(dtype).type(float(nodata))
    extra = [(42113, "s", 0, nodata, True)]
    tifffile.imwrite(tmp_path / "holed.tif", holed.squeeze(), photometric=kind, extratags=extra)
    whole, there = picture(tmp_path / "whole.tif"), np.ones((6, 7), bool)
    there[2, 3:5] = False
    found = picture(tmp_path / "holed.tif")
    assert np.array_equal(found[there], whole[there])
    assert not found[~there].any()
    if dtype == np.float32:  # of others, white is stated or the largest value
        seen = np.asarray(brightness(tmp_path / "holed.tif"))
        assert np.array_equal(seen[there], np.asarray(brightness(tmp_path / "whole.tif"))[there])
        assert (seen[~there] == 255).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_the_predictor_of_floats_is_of_floats_only(dtype: Any, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 250, (32, 48)).astype(dtype)
    tifffile.imwrite(tmp_path / "x.tif", values, compression="deflate", predictor=2, rowsperstrip=8)
    assert np.array_equal(picture(tmp_path / "x.tif")[..., 0], values)
    with tifffile.TiffFile(tmp_path / "x.tif", mode="r+") as file:
        file.pages[0].tags[317].overwrite(3)  # type: ignore[union-attr]
    with raises("image.predictor"):
        picture(tmp_path / "x.tif")


def test_no_data_that_no_tag_states(tmp_path: Path) -> None:
    values = np.ones((4, 4), np.float32)
    values[0, 0] = 3.4e38
    tifffile.imwrite(tmp_path / "x.tif", values)
    for read in (picture, brightness):
        with raises("image.no_data"):
            read(tmp_path / "x.tif")
