"""Pixels exactly as a file stores them: nothing is scaled, cut to 8 bits or made grey.

TIFF is read by tifffile, PNG in colour of 16 bits by torchvision, all else (and compressions that tifffile lacks) by
Pillow. As in `gcsa.images.reader`, the content of a file says what it is, the size in its header is bounded before anything
is decoded, and a picture stands as its camera held it (EXIF or TIFF orientation).
"""

import math
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import numpy as np
import tifffile
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_png

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa._utils.paths import read_bounded
from gcsa.images.reader import DEEP, FORMATS, MAX_DEEP_PIXELS, MAX_PIXELS

MAX_BYTES = 2**31
"""Of a file."""
TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
ORIENTATION = 274
"""Number of the tag, in EXIF as in TIFF."""
LOSSY = ("JPEG", "WEBP")
AS_STORED = ("1", "L", "RGB", "I", "F")
"""Modes of Pillow that become arrays without a change, beside those that start with I;16."""

T = TypeVar("T")


class RefusedError(ValueError):
    """A file that can be decoded and is not used: what it holds, and what would work, to be put behind its name."""


def read_stored(path: Path, *, labels: bool = False) -> Array:
    """The values (H, W) or, in colour, (H, W, 3) of a picture in its own type; alpha is dropped.

    With `labels`, a palette is not looked up, and what a format without loss holds is refused otherwise.

    Raises:
        ValueError: naming the file: it cannot be decoded, is no regular file, has too many pixels, planes or channels.
    """
    return _named(path, lambda data: _tiff(data, labels) if _is_tiff(data) else _other(data, labels))


def stored_size(path: Path) -> tuple[int, int]:
    """Height and width of what `read_stored` gives, from the header alone; an orientation that a PNG file holds behind
    its pixels is not seen. Raises ValueError as `read_stored` does."""
    return _named(path, lambda data: _tiff_size(data) if _is_tiff(data) else _other_size(data))


def _named(path: Path, read: Callable[[bytes], T]) -> T:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about size and metadata, without the name of the file
            return read(read_bounded(path, min(path.stat().st_size, MAX_BYTES)))
    except MemoryError:
        raise
    except RefusedError as error:
        raise UserError(f"{path} {error}") from error
    except Exception as error:  # decoders raise what they stumble over: KeyError, struct.error, zlib.error ...
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200] or type(error).__name__
        raise UserError(f"{path} cannot be read as an image ({reason}): remove or replace it") from error


def _is_tiff(data: bytes) -> bool:
    return data.startswith(TIFF_STARTS)


def _tiff(data: bytes, labels: bool) -> Array:
    with tifffile.TiffFile(BytesIO(data)) as file:
        height, width, channels = plane(file)
        series, page = file.series[0], file.pages.first
        kind = tifffile.PHOTOMETRIC(page.photometric).name
        many_bits = series.dtype.itemsize > 1
        _check_pixels(height, width, many_bits)
        white_is_zero = kind == "MINISWHITE"
        if white_is_zero and not labels:
            raise RefusedError("stores white as zero (MINISWHITE): save it with black as zero")
        if kind not in ("MINISBLACK", "MINISWHITE", "RGB") and not (labels and kind == "PALETTE"):
            return _other(data, labels)
        try:
            values = series.asarray(maxworkers=1)
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            if white_is_zero or (many_bits and channels > 1):
                compression = tifffile.COMPRESSION(page.compression).name
                raise RefusedError(
                    f"is compressed by {compression}, which only the package imagecodecs reads here: install it, "
                    "or save the file without compression"
                ) from error
            return _other(data, labels)
        kept = [
            (axis, count) for axis, count in zip(series.axes, series.shape, strict=True) if axis in "YX" or count > 1
        ]
        order = sorted(range(len(kept)), key=lambda i: "YXSC".index(kept[i][0]))
        values = values.reshape([count for _, count in kept]).transpose(order)
        return _upright(values[..., :3] if channels == 4 else values, _tiff_orientation(page))


def _tiff_size(data: bytes) -> tuple[int, int]:
    with tifffile.TiffFile(BytesIO(data)) as file:
        height, width, _ = plane(file)
        return (width, height) if _tiff_orientation(file.pages.first) >= 5 else (height, width)


def _tiff_orientation(page: tifffile.TiffPage) -> int:
    tag = page.tags.get(ORIENTATION)
    return 1 if tag is None else int(tag.value)


def plane(file: tifffile.TiffFile) -> tuple[int, int, int]:
    """Height, width and channels. Raises RefusedError for more than one plane, and channels that are no colours."""
    if not file.series:
        raise UserError("it holds no picture")
    if len(file.series) > 1:
        raise RefusedError(f"holds {len(file.series)} pictures: save one a file")
    series = file.series[0]
    sizes = list(zip(series.axes, series.shape, strict=True))
    as_stored = f"{' x '.join(map(str, series.shape))} as {series.axes}"
    planes = math.prod(count for axis, count in sizes if axis not in "YXSC")
    if planes != 1:
        raise RefusedError(
            f"holds {planes} planes or channels ({as_stored}): save one plane a file, with 1, 3 (RGB) or 4 (RGB and "
            "alpha) channels"
        )
    samples, colours = (math.prod(count for axis, count in sizes if axis == letter) for letter in "SC")
    if (samples, colours) not in ((1, 1), (3, 1), (4, 1), (1, 3)):
        raise RefusedError(
            f"holds {samples * colours} channels ({as_stored}): save those to be used as 1, 3 (RGB) or 4 (RGB and alpha)"
        )
    by_name = dict(sizes)
    return by_name["Y"], by_name["X"], samples * colours


def _opened(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data), formats=FORMATS)
    width, height = image.size
    _check_pixels(height, width, image.mode.startswith(DEEP))
    return image


def _other(data: bytes, labels: bool) -> Array:
    with _opened(data) as image:
        if labels and image.format in LOSSY:
            raise RefusedError(f"is {image.format}, which does not keep labels exactly: save them as PNG or TIFF")
        image.load()
        orientation = int(image.getexif().get(ORIENTATION, 1))
        if image.format == "PNG" and data[24] == 16 and image.mode in ("RGB", "RGBA"):  # Pillow would cut it to 8 bits
            bits = decode_png(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.UNCHANGED)
            values = bits.movedim(0, -1).numpy()
            return _upright(values[..., 0] if values.shape[-1] == 2 else values[..., :3], orientation)
        if image.mode in AS_STORED or image.mode.startswith("I;16") or (labels and image.mode == "P"):
            return _upright(np.asarray(image), orientation)
        return _upright(np.asarray(image.convert("L" if image.mode in ("LA", "La") else "RGB")), orientation)


def _other_size(data: bytes) -> tuple[int, int]:
    with _opened(data) as image:
        width, height = image.size
        known = image.format != "PNG" or "exif" in image.info  # else Pillow decodes the pixels to look behind them
        turned = known and image.format != "TIFF" and int(image.getexif().get(ORIENTATION, 1)) >= 5
        return (width, height) if turned else (height, width)


def _check_pixels(height: int, width: int, many_bits: bool) -> None:
    most = MAX_DEEP_PIXELS if many_bits else MAX_PIXELS
    if height * width > most:
        raise RefusedError(f"holds {height} x {width} pixels, above {most:,}: cut it into tiles")


def _upright(values: Array, orientation: int) -> Array:
    """Values (H, W, ...) as the tag 1..8 says that they should be seen; its other values mean nothing."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    return np.ascontiguousarray(values)
