"""JPEG 2000 (ISO/IEC 15444-1) of more than 8 bits. All else is read by Pillow, whose decoder is OpenJPEG.

Pillow widens grey of 9 to 15 bits to 16, which is undone, since the header (annexes A.5.1 and I) says how many there are. Colours it
cuts to 8 bits, and white becomes black: these are read by imagecodecs. It does not state the size before it decodes, so the header is
read here.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, NamedTuple

import imagecodecs
import numpy as np
from PIL import Image

from gcsa.images.pixels import Pixels, Refused, check_pixels, with_alpha

STARTS = (b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
"""Of a file of boxes (.jp2, .jpx), and of a code stream (.j2k)."""
STREAM = b"jp2c"


class Header(NamedTuple):
    """size: width and height; bits: of each colour; streams: the pictures of the file."""

    size: tuple[int, int]
    bits: tuple[int, ...]
    streams: int


def read_deep(file: BinaryIO, image: Image.Image) -> Pixels | None:
    """The pixels of a file of more than 8 bits, which Pillow has opened as `image`; None for any other.

    Raises ValueError where it is damaged, holds several pictures, too many pixels, or colours with a sign.
    """
    header = read_header(file)
    if header.streams > 1:
        raise Refused("holds several images: save one a file", "image.several")
    if header.size != image.size:
        raise ValueError("its headers state two sizes")
    bits = max(header.bits)
    if bits <= 8:
        return None
    if image.mode == "I;16":
        return Pixels(np.asarray(image) >> max(0, 16 - bits), 2 ** min(16, bits) - 1)
    check_pixels(image.height, image.width, deep=True)
    file.seek(0)
    values = imagecodecs.jpeg2k_decode(file.read())
    if values.dtype.kind != "u":
        raise Refused(
            "holds colours with a sign, whose black and white it does not state: save it as TIFF or PNG",
            "image.signed_colours",
        )
    return with_alpha(values, 2**bits - 1) if values.shape[2] in (2, 4) else Pixels(values, 2**bits - 1)


def read_header(file: BinaryIO) -> Header:
    """The header of a file that starts with one of `STARTS`. Raises ValueError where it is damaged."""
    file.seek(0)
    starts = [0] if file.read(4) == STARTS[1] else _streams(file)
    if not starts:
        raise ValueError("it has no code stream")
    file.seek(starts[0])
    header = file.read(42)
    if len(header) < 42 or header[:4] != STARTS[1]:
        raise ValueError("its code stream does not start with a size")
    right, bottom, left, top = struct.unpack(">4I", header[8:24])
    count = struct.unpack(">H", header[40:])[0]
    components = file.read(3 * count)
    if not count or len(components) < 3 * count:
        raise ValueError("its code stream is cut off")
    return Header((right - left, bottom - top), tuple((bits & 0x7F) + 1 for bits in components[::3]), len(starts))


def _streams(file: BinaryIO) -> list[int]:
    """Where the code streams in the boxes of a file start."""
    end = file.seek(0, 2)
    found, start = [], 0
    while start + 8 <= end:
        file.seek(start)
        length, kind = struct.unpack(">I4s", file.read(8))
        inside = start + 8
        if length == 1:
            length, inside = struct.unpack(">Q", file.read(8).rjust(8, b"\0"))[0], inside + 8
        elif length == 0:  # up to the end of the file
            length = end - start
        if kind == STREAM:
            found.append(inside)
        start = max(inside, start + length)
    return found
