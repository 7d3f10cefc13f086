"""JPEG 2000 by Pillow, with the bits that its header states, and above 8 bits in colour by imagecodecs."""

import struct
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from gcsa.images.folders import list_images
from gcsa.images.jpeg2000 import STARTS
from gcsa.images.reader import image_size, read_grey, read_image, read_labels, read_picture
from tests.errors import raises
from tests.fuzzing import sealed

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (12, 20, 3), np.uint8)
DEEP = RNG.integers(0, 65536, (12, 20), np.uint16)
TWELVE_BITS = bytes.fromhex(
    "ff4fff5100290000000000040000000400000000000000000000000400000004000000000000000000010b0101ff52000c000000010000"
    "04040001ff5c00044060ff640025000143726561746564206279204f70656e4a5045472076657273696f6e20322e352e34ff90000a0000"
    "0000002b0001ff93dfe068121a396ea182d6fa24b1e57dfd9113d8006a8685be58cdd0ff7fffd9"
)
"""A code stream of imagecodecs, 4 x 4 grey pixels of 12 bits: 0, 273, 546 and so on to 4095."""


def save(path: Path, values: np.ndarray) -> Path:
    """Without loss."""
    Image.fromarray(values).save(path, format="JPEG2000", irreversible=False, no_jp2=path.suffix == ".j2k")
    return path


@pytest.mark.parametrize("suffix", [".jp2", ".jpx", ".j2k"])
def test_8_and_16_bits_grey_and_colour(suffix: str, tmp_path: Path) -> None:
    path = save(tmp_path / f"1{suffix}", COLOUR)
    assert np.array_equal(np.asarray(read_image(path, 3)), COLOUR)
    assert np.array_equal(read_picture(path, 3), COLOUR)
    assert image_size(path) == (20, 12)
    assert list_images(tmp_path) == [path]
    save(path, COLOUR[..., 0])
    assert np.array_equal(read_grey(path), COLOUR[..., 0])
    save(path, DEEP)
    assert np.array_equal(read_picture(path, 1)[..., 0], DEEP)
    assert np.allclose(read_grey(path), DEEP / 257)


def test_12_bits_are_what_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "1.j2k"
    path.write_bytes(TWELVE_BITS)
    values = np.arange(0, 4096, 273, dtype=np.uint16).reshape(4, 4)
    assert np.array_equal(read_picture(path, 1)[..., 0], values), "Pillow alone gives 16 times as much"
    assert np.allclose(read_grey(path), values / 4095 * 255)


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
@pytest.mark.parametrize("shape", [(12, 20), (12, 20, 3)])
@pytest.mark.parametrize("form", ["jp2", "j2k"])
def test_the_values_are_those_of_imagecodecs(bits: int, shape: tuple[int, ...], form: str, tmp_path: Path) -> None:
    values = RNG.integers(0, 2**bits, shape).astype(np.uint8 if bits == 8 else np.uint16)
    options = {"level": 0, "reversible": True, "bitspersample": bits, "codecformat": form}
    path = tmp_path / f"1.{form}"
    path.write_bytes(imagecodecs.jpeg2k_encode(values, **options))
    expected = imagecodecs.jpeg2k_decode(path.read_bytes())
    assert np.array_equal(expected, values)
    read = np.asarray(read_image(path, 3 if len(shape) == 3 else 1))
    assert np.abs(read - expected / (2**bits - 1) * 255).max() <= 1
    assert np.array_equal(read_picture(path, 3 if len(shape) == 3 else 1).squeeze(), expected)


def test_white_of_deep_colours_is_white(tmp_path: Path) -> None:
    """Pillow rounds it up to 256, which is black in 8 bits."""
    path = tmp_path / "1.jp2"
    white = np.full((8, 8, 3), 65535, np.uint16)
    path.write_bytes(imagecodecs.jpeg2k_encode(white, level=0, reversible=True, codecformat="jp2"))
    assert (np.asarray(read_image(path, 3)) == 255).all()
    assert (read_picture(path, 3) == 65535).all()


def test_labels_and_several_pictures_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "1.jp2", COLOUR[..., 0])
    with raises("labels.lossy"):
        read_labels(path)
    content = path.read_bytes()
    stream = content[content.index(b"jp2c") - 4 :]
    path.write_bytes(content[: -len(stream)] + struct.pack(">I", len(stream)) + stream[4:] + stream)
    with raises("image.several"):
        read_grey(path)


@pytest.mark.parametrize("suffix", [".jp2", ".j2k"])
def test_too_many_pixels_are_refused_before_they_are_decoded(suffix: str, tmp_path: Path) -> None:
    path = save(tmp_path / f"1{suffix}", COLOUR)
    content = bytearray(path.read_bytes())
    for mark, skipped in ((STARTS[1], 8), (b"ihdr", 4)):
        if mark in content:
            start = content.index(mark) + skipped
            content[start : start + 8] = struct.pack(">II", 12_500, 12_500)
    path.write_bytes(content)
    for read in (lambda: read_image(path, 3), lambda: image_size(path)):
        with raises("image.too_large"), sealed(tmp_path, memory=1 << 27):
            read()


def test_boxes_that_state_another_size_than_the_picture(tmp_path: Path) -> None:
    path = save(tmp_path / "1.jp2", COLOUR)
    content = bytearray(path.read_bytes())
    start = content.index(STARTS[1]) + 8
    content[start : start + 8] = struct.pack(">II", 40_000, 40_000)
    path.write_bytes(content)
    with raises("image.unreadable"), sealed(tmp_path, memory=1 << 27):
        read_image(path, 3)


@pytest.mark.parametrize("keep", [4, 20, 60, 100])
def test_a_damaged_header_is_named(keep: int, tmp_path: Path) -> None:
    path = save(tmp_path / "1.jp2", COLOUR)
    path.write_bytes(path.read_bytes()[:keep])
    with raises("image.unreadable"):
        read_grey(path)


def test_colours_with_a_sign_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.j2k"
    values = RNG.integers(-2048, 2048, (12, 20, 3), np.int16)
    path.write_bytes(imagecodecs.jpeg2k_encode(values, level=0, codecformat="j2k", bitspersample=12, reversible=True))
    with raises("image.signed_colours"):
        read_picture(path, 3)
