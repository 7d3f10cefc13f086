"""Every kind of picture is read as what it shows, and what cannot be is refused in one sentence before it is decoded."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gcsa.images import reader as images
from gcsa.images.reader import image_size, levels, read_image, read_levels
from tests.fuzzing import sealed

GREY = np.arange(12 * 20, dtype=np.uint8).reshape(12, 20)  # from black to nearly white


def png_header(width: int, height: int, depth: int = 8) -> bytes:
    """The start of a PNG of any size, without pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = [
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in (header, data)
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


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
    assert np.abs(read_levels(path) - expected).max() <= 1


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
    assert np.allclose(levels(Image.fromarray(values)), values / 257)
    assert levels(Image.fromarray(values)).dtype == np.float32
    dark = np.array([[0, 1, 255]], np.uint16)
    assert levels(Image.fromarray(dark)).max() < 1, "the file says 16 bits: white is 65535, however dark it is"
    assert levels(Image.fromarray(np.array([[0, 10**6]], np.int32)))[0, 1] == pytest.approx(255)
    assert levels(Image.fromarray(GREY)).dtype == np.uint8


@pytest.mark.parametrize("values", [[np.nan, 1], [np.inf, 1], [-1.0, 1]])
def test_values_that_are_no_brightness_are_refused(values: list[float], tmp_path: Path) -> None:
    Image.fromarray(np.array([values], np.float32)).save(tmp_path / "1.tif")
    with pytest.raises(ValueError, match=r"1\.tif cannot be read as an image \(its values lie in"):
        read_levels(tmp_path / "1.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_as_the_camera_was_held(orientation: int, tmp_path: Path) -> None:
    stored = {
        1: GREY,
        2: GREY[:, ::-1],
        3: GREY[::-1, ::-1],
        4: GREY[::-1],
        5: GREY.T,
        6: np.rot90(GREY),
        7: np.rot90(GREY, 2).T,
        8: np.rot90(GREY, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "1.png"
    Image.fromarray(stored.copy()).save(path, exif=exif)
    assert np.array_equal(np.asarray(read_image(path, 1)), GREY)
    assert np.array_equal(read_levels(path), GREY)
    assert np.array_equal(read_levels(path, upright=False), stored)
    assert image_size(path) == stored.shape[::-1]


@pytest.mark.parametrize("suffix", [".tif", ".gif", ".webp", ".png"])
def test_of_many_frames_the_first_is_read(suffix: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((200, 0, 0), (0, 200, 0))]
    frames[0].save(tmp_path / f"1{suffix}", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / f"1{suffix}", 3).getpixel((3, 3))[0] >= 190


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (2**31 - 1, 2**31 - 1), (12_500, 12_500), (1, 2**31 - 1)]
)
def test_too_many_pixels_are_refused_before_they_are_decoded(width: int, height: int, tmp_path: Path) -> None:
    path = tmp_path / "1.png"
    path.write_bytes(png_header(width, height))
    for read in (lambda: read_image(path, 3), lambda: read_levels(path), lambda: image_size(path)):
        with (
            pytest.raises(ValueError, match=r"1\.png cannot be read as an image \(.*pixels") as error,
            sealed(tmp_path, memory=1 << 27),
        ):
            read()
        assert "\n" not in str(error.value)


def test_the_bound_is_ours_whatever_pillow_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(GREY).save(tmp_path / "1.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr(images, "MAX_PIXELS", 200)
    with pytest.raises(ValueError, match="20 x 12 pixels, above 200"):
        read_image(tmp_path / "1.png", 3)
    monkeypatch.setattr(images, "MAX_PIXELS", 240)
    assert read_image(tmp_path / "1.png", 3).size == (20, 12)


def test_a_picture_is_what_it_holds_and_postscript_is_none(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "1.png")
    (tmp_path / "1.png").rename(tmp_path / "1.jpg")
    assert np.array_equal(read_levels(tmp_path / "1.jpg"), GREY)
    (tmp_path / "2.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\nshowpage\n")
    with pytest.raises(ValueError, match=r"2\.png cannot be read as an image \(cannot identify"), sealed(tmp_path):
        read_image(tmp_path / "2.png", 3)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.png", "No such file"), (tmp_path, "not a regular file")):
        with pytest.raises(ValueError, match=rf"cannot be read as an image \({reason}"):
            read_image(path, 3)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
        with pytest.raises(ValueError, match=r"pipe\.png cannot be read as an image \(not a regular file"):
            read_image(tmp_path / "pipe.png", 3)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp", ".bmp", ".gif", ".ppm"])
@pytest.mark.parametrize("keep", [0, 10, 0.5])
def test_truncated_files_are_named(suffix: str, keep: float, tmp_path: Path) -> None:
    path = tmp_path / f"1{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    with pytest.raises(ValueError, match=rf"1\{suffix} cannot be read as an image"):
        read_image(path, 3)
