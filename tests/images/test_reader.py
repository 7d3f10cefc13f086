"""Every kind of picture is read as what it shows, and what cannot be is refused in one sentence before it is decoded."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from gcsa._utils.errors import UserError
from gcsa.images.reader import check_pair, grey_pixels, image_size, read_grey, read_image, read_labels, read_picture
from tests.errors import raises
from tests.fuzzing import sealed

GREY = np.arange(12 * 20, dtype=np.uint8).reshape(12, 20)  # from black to nearly white


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width: int, height: int, depth: int = 8, colours: int = 0, pixels: bytes = b"") -> bytes:
    """The start of a PNG of any size, without its end, and without pixels where none are given."""
    header = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels))


def save_png16(path: Path, values: np.ndarray) -> None:
    """A PNG of 16 bits in colour, which Pillow does not write; of 2 to 4 channels."""
    height, width, channels = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    path.write_bytes(png_header(width, height, 16, {2: 4, 3: 2, 4: 6}[channels], rows) + chunk(b"IEND"))


def pictures() -> dict[str, tuple[Image.Image, str]]:
    """The same grey picture in every mode, with the suffix of a format that keeps it."""
    grey = Image.fromarray(GREY)
    opaque = Image.new("L", grey.size, 255)
    # Black, and the more transparent the lighter: on white paper that is the same picture.
    glass = Image.merge("LA", [Image.new("L", grey.size, 0), Image.fromarray(255 - GREY)])
    return {
        "L": (grey, ".png"),
        "RGB": (grey.convert("RGB"), ".png"),
        "P": (grey.convert("P"), ".png"),
        "CMYK": (Image.merge("CMYK", [Image.new("L", grey.size, 0)] * 3 + [Image.fromarray(255 - GREY)]), ".tif"),
        "RGBA": (Image.merge("RGBA", [grey, grey, grey, opaque]), ".png"),
        "transparent LA": (glass, ".png"),
        "transparent RGBA": (glass.convert("RGBA"), ".tif"),
        "I;16 PNG": (Image.fromarray(GREY.astype(np.uint16) * 257), ".png"),
        "I;16 TIFF": (Image.fromarray(GREY.astype(np.uint16) * 257), ".tif"),
        "I": (Image.fromarray(GREY.astype(np.int32) * 257), ".tif"),
        "F in 0..1": (Image.fromarray(GREY.astype(np.float32) / 239), ".tif"),
        "F in 0..255": (Image.fromarray(GREY.astype(np.float32)), ".tif"),
    }


@pytest.mark.parametrize("mode", pictures())
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_shows_the_same_picture(mode: str, channels: int, tmp_path: Path) -> None:
    image, suffix = pictures()[mode]
    path = tmp_path / f"1{suffix}"
    image.save(path)
    read = read_image(path, channels)
    assert read.mode == ("RGB" if channels == 3 else "L")
    expected = np.round(GREY / 239 * 255) if mode == "F in 0..1" else GREY.astype(float)
    for channel in read.split():
        assert np.abs(np.asarray(channel) - expected).max() <= 1
    assert np.abs(read_grey(path) - expected).max() <= 1


def test_transparency_is_white_paper(tmp_path: Path) -> None:
    image = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    image.putpixel((1, 1), (10, 20, 30, 255))
    image.save(tmp_path / "1.png")
    read = read_image(tmp_path / "1.png", 3)
    assert (read.getpixel((0, 0)), read.getpixel((1, 1))) == ((255, 255, 255), (10, 20, 30))
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([200, 0, 0, 0, 0, 200])
    palette.putpixel((1, 1), 1)
    palette.save(tmp_path / "2.png", transparency=0)
    read = read_image(tmp_path / "2.png", 3)
    assert (read.getpixel((0, 0)), read.getpixel((1, 1))) == ((255, 255, 255), (0, 0, 200))


def test_more_than_8_bits_keep_their_fractions() -> None:
    values = np.array([[0, 128, 65535, 300]], np.uint16)
    assert np.allclose(grey_pixels(Image.fromarray(values)), values / 257)
    assert grey_pixels(Image.fromarray(values)).dtype == np.float32
    dark = np.array([[0, 1, 255]], np.uint16)
    assert grey_pixels(Image.fromarray(dark)).max() < 1, "the file says 16 bits: white is 65535, however dark it is"
    assert grey_pixels(Image.fromarray(np.array([[0, 10**6]], np.int32)))[0, 1] == pytest.approx(255)
    assert grey_pixels(Image.fromarray(GREY)).dtype == np.uint8


@pytest.mark.parametrize("values", [[np.nan, 1], [np.inf, 1], [-1.0, 1]])
def test_values_that_are_no_brightness_are_refused(values: list[float], tmp_path: Path) -> None:
    Image.fromarray(np.array([values], np.float32)).save(tmp_path / "1.tif")
    with raises("image.range"):
        read_grey(tmp_path / "1.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_as_the_camera_was_held(orientation: int, tmp_path: Path) -> None:
    half = np.rot90(GREY, 2)
    stored = (GREY, GREY[:, ::-1], half, GREY[::-1], GREY.T, np.rot90(GREY), half.T, np.rot90(GREY, -1))[
        orientation - 1
    ]
    exif = Image.Exif()
    exif[274] = orientation
    image = Image.fromarray(stored.copy())
    image.save(tmp_path / "1.png", exif=exif)
    image.save(tmp_path / "1.tif", compression="tiff_lzw", tiffinfo={274: orientation})
    for path in (tmp_path / "1.png", tmp_path / "1.tif"):
        assert np.array_equal(np.asarray(read_image(path, 1)), GREY)
        assert np.array_equal(read_grey(path), GREY)
        assert np.array_equal(read_picture(path, 1)[..., 0], GREY)
        assert np.array_equal(read_labels(path), GREY)
        assert np.array_equal(read_grey(path, upright=False), stored)
        assert image_size(path) == stored.shape[::-1]
        assert image_size(path, upright=True) == GREY.shape[::-1]


@pytest.mark.parametrize("suffix", [".tif", ".gif", ".webp", ".png"])
def test_several_frames_are_refused(suffix: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((200, 0, 0), (0, 200, 0))]
    path = tmp_path / f"1{suffix}"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    for read in (lambda: read_image(path, 3), lambda: read_picture(path, 3), lambda: image_size(path)):
        with pytest.raises(UserError, match=rf"1\{suffix} holds .* save one"):
            read()


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (2**31 - 1, 2**31 - 1), (12_500, 12_500), (1, 2**31 - 1)]
)
def test_too_many_pixels_are_refused_before_they_are_decoded(width: int, height: int, tmp_path: Path) -> None:
    path = tmp_path / "1.png"
    path.write_bytes(png_header(width, height))
    for read in (lambda: read_image(path, 3), lambda: read_grey(path), lambda: image_size(path)):
        with (
            pytest.raises(ValueError, match=r"1\.png (holds|cannot be read as an image \().*pixels") as error,
            sealed(tmp_path, memory=1 << 27),
        ):
            read()
        assert "\n" not in str(error.value)


def test_the_bound_is_ours_whatever_pillow_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(GREY).save(tmp_path / "1.png")
    Image.fromarray(GREY).save(tmp_path / "1.tif")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    for name in ("1.png", "1.tif"):
        monkeypatch.setattr("gcsa.images.pixels.MAX_PIXELS", 200)
        with raises("image.too_large"):
            read_image(tmp_path / name, 3)
        monkeypatch.setattr("gcsa.images.pixels.MAX_PIXELS", 240)
        assert read_image(tmp_path / name, 3).size == (20, 12)


def test_a_picture_is_what_it_holds_and_postscript_is_none(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "1.png")
    (tmp_path / "1.png").rename(tmp_path / "1.jpg")
    assert np.array_equal(read_grey(tmp_path / "1.jpg"), GREY)
    (tmp_path / "2.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\nshowpage\n")
    with raises("image.unreadable"), sealed(tmp_path):
        read_image(tmp_path / "2.png", 3)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.png", "No such file"), (tmp_path, "not a regular file")):
        with pytest.raises(ValueError, match=rf"cannot be read as an image \({reason}"):
            read_image(path, 3)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
        with raises("image.unreadable"):
            read_image(tmp_path / "pipe.png", 3)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".jp2", ".tif", ".webp", ".bmp", ".gif", ".ppm"])
@pytest.mark.parametrize("keep", [0, 10, 0.5])
@pytest.mark.parametrize("fills_up", [False, True])  # as lightly-train has it in the whole process
def test_truncated_files_are_named(
    suffix: str, keep: float, fills_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", fills_up)
    path = tmp_path / f"1{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    with raises("image.unreadable"):
        read_image(path, 3)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is fills_up


def test_deep_png(tmp_path: Path) -> None:
    """16 bits a channel, which Pillow cuts to 8: with alpha and without, as a picture and as brightness."""
    colour = np.random.default_rng(0).integers(0, 65536, (7, 9, 3), np.uint16)
    opaque, glass = np.full((7, 9, 1), 65535, np.uint16), colour[..., :1]
    for values in (colour, np.concatenate([colour, opaque], 2), np.concatenate([colour[..., 1:2], opaque], 2)):
        save_png16(tmp_path / "1.png", values)
        picture = colour if values.shape[2] > 2 else np.repeat(colour[..., 1:2], 3, 2)
        assert np.array_equal(read_picture(tmp_path / "1.png", 3), picture)
        assert np.array_equal(np.asarray(read_image(tmp_path / "1.png", 3)), (picture / 257).round())
        assert np.abs(read_grey(tmp_path / "1.png") - picture @ [0.299, 0.587, 0.114] / 257).max() < 1e-3
        assert np.abs(read_picture(tmp_path / "1.png", 1)[..., 0] - picture @ [0.299, 0.587, 0.114]).max() <= 0.5001
    save_png16(tmp_path / "1.png", np.concatenate([colour, glass], 2))
    share = glass / 65535
    assert (
        np.abs(np.asarray(read_image(tmp_path / "1.png", 3)) - (colour / 257 * share + 255 * (1 - share))).max() <= 0.51
    )
    assert np.array_equal(read_picture(tmp_path / "1.png", 3), colour), "alpha is dropped"


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_colour_of_16_bits_is_white_paper(channels: int, tmp_path: Path) -> None:
    """The colour that a chunk tRNS names is transparent, as it is in 8 bits."""
    values = np.full((4, 5, channels), 257 * 40, np.uint16)
    values[1, 2] = 0
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", 5, 4, 16, 0 if channels == 1 else 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"tRNS", bytes(2 * channels)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    (tmp_path / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))
    expected = np.full((4, 5), 40)
    expected[1, 2] = 255
    assert np.array_equal(np.asarray(read_image(tmp_path / "1.png", 3)), expected[..., None].repeat(3, 2))
    assert np.abs(read_grey(tmp_path / "1.png") - expected).max() < 1e-3
    assert read_picture(tmp_path / "1.png", 3)[1, 2].tolist() == [0, 0, 0], "alpha is dropped"


def test_pictures_keep_their_values(tmp_path: Path) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (7, 9, 3), np.uint8)
    alpha = Image.fromarray(colour)
    alpha.putalpha(Image.fromarray(colour[..., 0]))
    alpha.save(tmp_path / "alpha.png")
    assert np.array_equal(read_picture(tmp_path / "alpha.png", 3), colour)
    Image.fromarray(GREY).convert("P").save(tmp_path / "palette.png")
    assert np.array_equal(read_picture(tmp_path / "palette.png", 1)[..., 0], GREY)
    Image.fromarray(GREY.astype(np.uint16) * 17).save(tmp_path / "deep.png")
    assert np.array_equal(read_picture(tmp_path / "deep.png", 3)[..., 2], GREY.astype(np.uint16) * 17)


def test_labels(tmp_path: Path) -> None:
    for dtype in (np.uint8, np.uint16):
        labels = GREY.astype(dtype) * dtype(np.iinfo(dtype).max // 255)
        Image.fromarray(labels).save(tmp_path / "1.png")
        assert read_labels(tmp_path / "1.png").dtype == np.int32
        assert np.array_equal(read_labels(tmp_path / "1.png"), labels)
    palette = Image.fromarray(GREY % 5).convert("P")
    palette.putpalette([0, 0, 0, 9, 9, 9, 9, 200, 9, 9, 9, 200, 3, 3, 3])
    palette.save(tmp_path / "1.png", transparency=0)
    assert np.array_equal(read_labels(tmp_path / "1.png"), GREY % 5)
    Image.fromarray(GREY).convert("RGB").save(tmp_path / "1.png")
    Image.fromarray(GREY).save(tmp_path / "1.jpg")
    for name, key in (("1.png", "labels.colour"), ("1.jpg", "labels.lossy")):
        with raises(key):
            read_labels(tmp_path / name)


def test_pairs_have_one_size(tmp_path: Path) -> None:
    """From the headers: the pixels of the mask are damaged."""
    Image.fromarray(GREY).save(tmp_path / "image.png")
    Image.fromarray(GREY).save(tmp_path / "mask.png")
    (tmp_path / "mask.png").write_bytes((tmp_path / "mask.png").read_bytes()[:-20])
    check_pair(tmp_path / "image.png", tmp_path / "mask.png")
    Image.fromarray(GREY[1:]).save(tmp_path / "mask.png")
    with raises("mask.size"):
        check_pair(tmp_path / "image.png", tmp_path / "mask.png")
