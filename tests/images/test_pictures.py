import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from gcsa.images.intensity import normalize, percentiles
from gcsa.images.microscopy import check_pair, read_labels, read_picture
from gcsa.images.stored import stored_size

from .test_reader import png_header

RNG = np.random.default_rng(0)
DEEP = RNG.integers(0, 4096, (7, 9), np.uint16)
COLOUR = RNG.integers(0, 4096, (7, 9, 3), np.uint16)
TURNS = [lambda a, k=k, m=m: np.rot90(a[:, ::-1] if m else a, k) for k in range(4) for m in (False, True)]


def save_png16(path: Path, values: np.ndarray) -> None:
    """A PNG of 16 bits in colour, which Pillow does not write; of 2 to 4 channels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def test_twelve_bits_stay_twelve_bits(tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / "grey.png")
    Image.fromarray(DEEP).save(tmp_path / "lzw.tif", compression="tiff_lzw")  # which tifffile alone does not read
    tifffile.imwrite(tmp_path / "grey.tif", DEEP)
    tifffile.imwrite(tmp_path / "tiles.tif", np.pad(DEEP, ((0, 25), (0, 23))), tile=(16, 16), compression="zlib")
    tifffile.imwrite(tmp_path / "big.tif", DEEP, bigtiff=True, byteorder=">")
    for name in ("grey.png", "lzw.tif", "grey.tif", "big.tif", "tiles.tif"):
        found = read_picture(tmp_path / name, 1)
        assert found.dtype == np.uint16
        assert np.array_equal(found[:7, :9, 0], DEEP), name
        assert np.array_equal(read_picture(tmp_path / name, 3), np.repeat(found, 3, 2))


def test_colour_of_sixteen_bits(tmp_path: Path) -> None:
    save_png16(tmp_path / "a.png", COLOUR)
    save_png16(tmp_path / "b.png", np.concatenate([COLOUR, COLOUR[..., :1]], 2))
    tifffile.imwrite(tmp_path / "c.tif", COLOUR, photometric="rgb")
    tifffile.imwrite(
        tmp_path / "d.tif", np.concatenate([COLOUR, COLOUR[..., :1]], 2), photometric="rgb", extrasamples=["unassalpha"]
    )
    planar = {"photometric": "rgb", "planarconfig": "separate"}
    tifffile.imwrite(tmp_path / "e.tif", np.moveaxis(COLOUR, 2, 0), **planar)
    tifffile.imwrite(tmp_path / "f.tif", np.moveaxis(COLOUR, 2, 0), imagej=True, metadata={"axes": "CYX"})
    for name in ("a.png", "b.png", "c.tif", "d.tif", "e.tif", "f.tif"):
        found = read_picture(tmp_path / name, 3)
        assert found.dtype == np.uint16
        assert np.array_equal(found, COLOUR), name
        grey = read_picture(tmp_path / name, 1)
        assert grey.shape == (7, 9, 1)
        assert np.abs(grey[..., 0] - COLOUR @ [0.299, 0.587, 0.114]).max() <= 0.5001
    save_png16(tmp_path / "glass.png", np.stack([DEEP, 65535 - DEEP], 2))
    assert np.array_equal(read_picture(tmp_path / "glass.png", 1)[..., 0], DEEP)


def test_eight_bits_and_floats(tmp_path: Path) -> None:
    levels = (COLOUR // 16).astype(np.uint8)
    alpha = Image.fromarray(levels)
    alpha.putalpha(Image.fromarray(levels[..., 0]))
    alpha.save(tmp_path / "alpha.png")
    Image.fromarray(levels[..., 0]).convert("P").save(tmp_path / "palette.png")
    assert np.array_equal(read_picture(tmp_path / "alpha.png", 3), levels)
    assert np.array_equal(read_picture(tmp_path / "palette.png", 1)[..., 0], levels[..., 0])
    for dtype in (np.float16, np.float32, np.float64):
        values = (DEEP / 4096 - 0.25).astype(dtype)
        tifffile.imwrite(tmp_path / "float.tif", values)
        found = read_picture(tmp_path / "float.tif", 1)
        assert found.dtype == np.float32
        assert np.array_equal(found[..., 0], values.astype(np.float32))
    tifffile.imwrite(tmp_path / "int.tif", DEEP.astype(np.int32))
    assert np.array_equal(read_picture(tmp_path / "int.tif", 1)[..., 0], DEEP)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_it_stands_as_the_camera_held_it(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(DEEP.astype(np.uint8))
    image.save(tmp_path / "a.png", exif=exif)
    tifffile.imwrite(tmp_path / "a.tif", np.asarray(image), extratags=[(274, "H", 1, orientation, True)])
    image.save(tmp_path / "lzw.tif", compression="tiff_lzw", tiffinfo={274: orientation})
    with Image.open(tmp_path / "a.png") as stored:
        expected = np.asarray(ImageOps.exif_transpose(stored))
    for name in ("a.png", "a.tif", "lzw.tif"):
        assert np.array_equal(read_picture(tmp_path / name, 1)[..., 0], expected), name
        assert stored_size(tmp_path / name) == expected.shape


@pytest.mark.parametrize(
    ("shape", "options", "sentence"),
    [
        ((5, 64, 62), {}, r"holds 5 planes or channels \(5 x 64 x 62 as QYX\): save one plane a file"),
        ((2, 3, 64, 62), {"photometric": "minisblack"}, r"holds 6 planes or channels \(2 x 3 x 64 x 62"),
        ((2, 2, 2, 64, 62), {}, r"holds 8 planes or channels \(2 x 2 x 2 x 64 x 62"),
        (
            (4, 64, 62),
            {"imagej": True, "metadata": {"axes": "CYX"}},
            r"holds 4 channels \(4 x 64 x 62 as CYX\): save those",
        ),
        ((2, 64, 62), {"ome": True, "metadata": {"axes": "CYX"}}, r"holds 2 channels"),
        (
            (64, 62, 5),
            {"photometric": "minisblack", "planarconfig": "contig"},
            r"holds 5 channels \(64 x 62 x 5 as YXS\)",
        ),
        ((64, 62), {"photometric": "miniswhite"}, r"stores white as zero \(MINISWHITE\)"),
    ],
)
def test_stacks_and_channels_are_refused(tmp_path: Path, shape: tuple[int, ...], options: dict, sentence: str) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.ones(shape, np.uint16), **options)
    with pytest.raises(ValueError, match=rf"a\.tif {sentence}"):
        read_picture(tmp_path / "a.tif", 3)


def test_two_pictures_in_one_file_are_refused(tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(DEEP)
        file.write(DEEP[:3])
    with pytest.raises(ValueError, match=r"a\.tif holds 2 pictures: save one a file"):
        read_picture(tmp_path / "a.tif", 1)


def test_values_and_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tif"
    for values, sentence in (
        (np.array([[1, np.nan]], np.float32), "holds values that are not finite"),
        (np.array([[1, -1]], np.int16), r"holds int16 values beyond 0\.\.65535"),
        (np.array([[1, 70000]], np.uint32), r"holds uint32 values beyond 0\.\.65535"),
        (np.ones((2, 2), np.complex64), "holds complex64 values beyond"),
    ):
        tifffile.imwrite(path, values)
        with pytest.raises(ValueError, match=rf"a\.tif {sentence}"):
            read_picture(path, 1)
    tifffile.imwrite(path, np.ones((64, 64), np.uint16))
    whole = path.read_bytes()
    for damaged in (b"", whole[:4], whole[:-1000], b"MM\0*" + whole[4:], b"no picture at all"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.tif cannot be read as an image \("):
            read_picture(path, 1)
    path.write_bytes(png_header(13_000, 13_000))
    with pytest.raises(ValueError, match=r"a\.tif holds 13000 x 13000 pixels, above 150,000,000"):
        read_picture(path, 1)
    path.write_bytes(whole)
    monkeypatch.setattr("gcsa.images.stored.MAX_DEEP_PIXELS", 4000)
    with pytest.raises(ValueError, match="holds 64 x 64 pixels, above 4,000: cut it into tiles"):
        read_picture(path, 1)
    with pytest.raises(ValueError, match=r"cannot be read as an image \(No such file"):
        read_picture(tmp_path / "nowhere.png", 1)


def test_a_compression_that_is_not_read(tmp_path: Path) -> None:
    """Colour of 16 bits in LZW, as its tags say: what Pillow would cut to 8 bits."""
    tifffile.imwrite(tmp_path / "a.tif", COLOUR, photometric="rgb", compression="zlib")
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        file.pages.first.tags[259].overwrite(5)
    with pytest.raises(ValueError, match=r"a\.tif is compressed by LZW, which only the package imagecodecs reads here"):
        read_picture(tmp_path / "a.tif", 3)


def test_labels_of_every_width(tmp_path: Path) -> None:
    for dtype in (np.uint8, np.uint16, np.uint32, np.int32, np.int64):
        labels = RNG.integers(0, min(np.iinfo(dtype).max, 2**31 - 1), (7, 9), dtype=dtype, endpoint=True)
        tifffile.imwrite(tmp_path / "a.tif", labels)
        found = read_labels(tmp_path / "a.tif")
        assert found.dtype == np.int32
        assert np.array_equal(found, labels)
        if dtype in (np.uint8, np.uint16):
            Image.fromarray(labels).save(tmp_path / "a.png")
            Image.fromarray(labels).save(tmp_path / "lzw.tif", compression="tiff_lzw")
            assert np.array_equal(read_labels(tmp_path / "a.png"), labels)
            assert np.array_equal(read_labels(tmp_path / "lzw.tif"), labels)
    tifffile.imwrite(tmp_path / "bool.tif", DEEP > 2000)
    assert np.array_equal(read_labels(tmp_path / "bool.tif"), DEEP > 2000)
    palette = Image.fromarray((DEEP % 5).astype(np.uint8), mode=None).convert("P")
    palette.putpalette([0, 0, 0, 9, 9, 9, 9, 200, 9, 9, 9, 200, 3, 3, 3])
    palette.save(tmp_path / "palette.png")
    assert np.array_equal(read_labels(tmp_path / "palette.png"), DEEP % 5)


def test_what_is_no_label_map_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for values, sentence in (
        (COLOUR, "is in colour: a mask must be a label map of one channel"),
        (DEEP.astype(np.float32), "holds float32 values: a mask must hold whole numbers"),
        (DEEP.astype(np.int16) - 5000, r"holds labels in -\d+..-\d+: they must lie in 0..2147483647"),
        (DEEP.astype(np.uint32) + 2**31, r"holds labels in \d+..\d+: they must lie in 0..2147483647"),
    ):
        tifffile.imwrite(path, values, photometric="rgb" if values.ndim == 3 else "minisblack")
        with pytest.raises(ValueError, match=rf"a\.tif {sentence}"):
            read_labels(path)
    Image.fromarray(COLOUR.astype(np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a\.png is in colour"):
        read_labels(tmp_path / "a.png")
    Image.fromarray(DEEP.astype(np.uint8)).save(tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=r"a\.jpg is JPEG, which does not keep labels exactly"):
        read_labels(tmp_path / "a.jpg")


def test_pairs_have_one_size(tmp_path: Path) -> None:
    """From the headers: the pixels of the mask are damaged."""
    Image.fromarray(DEEP).save(tmp_path / "image.png")
    tifffile.imwrite(tmp_path / "mask.tif", DEEP)
    (tmp_path / "mask.tif").write_bytes((tmp_path / "mask.tif").read_bytes()[:-20])
    check_pair(tmp_path / "image.png", tmp_path / "mask.tif")
    tifffile.imwrite(tmp_path / "mask.tif", DEEP[1:])
    with pytest.raises(ValueError, match=r"image\.png is 7 x 9 pixels and its mask .*mask\.tif 6 x 9: both must have"):
        check_pair(tmp_path / "image.png", tmp_path / "mask.tif")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_percentiles_are_bit_identical_however_turned(dtype: type, channels: int) -> None:
    values = RNG.gamma(2, 20, (61, 47, channels))
    picture = (values if dtype == np.float32 else values.clip(0, 255)).astype(dtype)
    scale = percentiles(picture)
    flat = np.sort(picture, axis=None)
    assert scale == (flat[round(0.01 * (flat.size - 1))], flat[round(0.998 * (flat.size - 1))])
    upright = normalize(picture, *scale)
    assert upright.dtype == np.float32
    assert np.allclose(np.percentile(upright, [1, 99.8]), [0, 1], atol=0.03)
    for turn in TURNS:
        turned = turn(picture)
        assert percentiles(turned) == scale
        assert percentiles(np.ascontiguousarray(turned)) == scale
        assert np.array_equal(normalize(turned, *scale), turn(upright.transpose(1, 2, 0)).transpose(2, 0, 1))


def test_hue_is_kept_and_nothing_clipped() -> None:
    picture = np.zeros((10, 10, 3), np.uint8)
    picture[..., 0], picture[..., 1] = 200, 100
    low, high = percentiles(picture, 0, 100)
    assert (low, high) == (0, 200)
    assert normalize(picture, low, high)[:, 0, 0].tolist() == [1, 0.5, 0]
    assert normalize(picture, 50, 100)[:, 0, 0].tolist() == [3, 1, -1]


def test_constant_and_almost_constant_pictures() -> None:
    for dtype in (np.uint8, np.uint16, np.float32):
        picture = np.full((32, 32, 1), 7, dtype)
        assert not normalize(picture, *percentiles(picture)).any()
        picture[3, 4] = 107  # a tenth of a percent
        assert percentiles(picture) == (7, 107)


def test_every_level_is_told_apart() -> None:
    """All 65536 levels stay different, which 8 bits would not keep."""
    picture = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    assert len(np.unique(normalize(picture, *percentiles(picture)))) == 65536


def test_real_nuclei(nuclei: Path) -> None:
    for mask in sorted((nuclei / "nuclei" / "test" / "masks").iterdir())[:5]:
        image = mask.parents[1] / "images" / mask.name
        check_pair(image, mask)
        with Image.open(image) as grey, Image.open(mask) as labels:
            assert np.array_equal(read_picture(image, 3), np.asarray(grey.convert("RGB")))
            assert np.array_equal(read_labels(mask), np.asarray(labels))
