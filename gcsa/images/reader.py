"""The one reader of pictures: data sets, text lines and pages all come through here.

A picture is the first frame of a PNG, JPEG, TIFF, WebP, BMP, GIF or PPM file, whatever its name ends in. Other formats
of Pillow are refused, since some run programs (EPS). The size in the header is bounded before anything is decoded.
"""

import os
import warnings
from io import BufferedReader, FileIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, one_line

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "PPM")
DEEP = ("I", "F")
"""How the names of Pillow's modes of more than 8 bits start."""
MAX_PIXELS = 150_000_000
"""Of a picture: a sheet of A2 scanned at 600 dpi has 139 million. Colour takes up to 20 bytes for each while it is read."""
MAX_DEEP_PIXELS = MAX_PIXELS // 2
"""Of a picture of more than 8 bits."""

GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in grey (luma of ITU-R BT.601), as Pillow converts."""


def read_image(path: str | os.PathLike[str], channels: int, *, upright: bool = True) -> Image.Image:
    """A picture in colour (`channels` 3, mode RGB) or grey (1, mode L), 8 bits, as `decode` defines them.

    It stands as its camera held it (EXIF orientation), or without `upright` as it is stored.

    Raises:
        ValueError: naming the file: it cannot be opened or decoded, is of another format or has too many pixels.
    """
    image = _read(Path(path), upright=upright)
    if image.mode == "F":
        image = Image.fromarray(np.asarray(image).round().astype(np.uint8))
    return image.convert("RGB" if channels == 3 else "L")


def read_levels(path: str | os.PathLike[str], *, upright: bool = True) -> Array:
    """Grey levels (H, W) of a picture, as `levels` gives them; with `upright` turned as its EXIF orientation says.

    Raises ValueError as `read_image` does.
    """
    return levels(_read(Path(path), upright=upright))


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Width and height as they are stored, from the header alone. Raises ValueError as `read_image` does."""
    return _read(Path(path), upright=False, decoded=False).size


def levels(image: Image.Image) -> Array:
    """Grey levels (H, W) from 0, black, to 255: uint8, or float32 where the picture has more than 8 bits."""
    image = decode(image)
    return np.asarray(image if image.mode == "F" else image.convert("L"))


def decode(image: Image.Image) -> Image.Image:
    """The same picture in mode L or RGB, 8 bits, or in mode F, grey levels from 0 to 255 with fractions.

    Transparency is laid on white, palettes and CMYK become RGB. Of 16-bit grey, white is 65535, so that what a 12-bit
    camera stored unscaled is dark. For 32 bits, of which files do not state the range: white is 1 where no value
    is above 1 (floats only), else 255 where none is above 255 (floats only), else 65535 or the largest value.

    Raises:
        ValueError: values that are not finite or negative, or colours that Pillow does not convert (LAB).
    """
    if image.mode.startswith(DEEP):  # Pillow itself would clip these at 255
        values = np.asarray(image).astype(np.float32, copy=False)
        top = float(values.max())
        if not np.isfinite(values).all() or values.min() < 0:
            raise UserError(f"its values lie in {values.min():g}..{top:g}, not between 0 and a finite number")
        whites = (1, 255, 65535, top) if image.mode.startswith("F") else (65535, top)
        return Image.fromarray(values * np.float32(255 / next(white for white in whites if top <= white)))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")


def _read(path: Path, *, upright: bool, decoded: bool = True) -> Image.Image:
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device would not end
            raise UserError("not a regular file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about size and metadata, without the name of the file
            with _Bounded(path) as file, Image.open(file, formats=FORMATS) as image:
                width, height = image.size
                most = MAX_DEEP_PIXELS if image.mode.startswith(DEEP) else MAX_PIXELS
                if width * height > most:
                    raise UserError(f"{width} x {height} pixels, above {most:,}")
                if not decoded:
                    return image
                if upright:
                    ImageOps.exif_transpose(image, in_place=True)
                image.load()
                return decode(image)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise what they stumble over: KeyError, struct.error, zlib.error ...
        raise UserError(f"{path} cannot be read as an image ({_reason(error)}): remove or replace it") from error


class _Bounded(BufferedReader):
    """A file opened for reading. Python allocates what is asked for before it reads, and a damaged file may make its
    decoder ask for 4 GiB: no more is asked for than there is."""

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path))
        self.length = path.stat().st_size

    def read(self, size: int | None = -1) -> bytes:
        there = max(0, self.length - self.tell())
        return super().read(there if size is None or size < 0 else min(size, there))


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):  # its message names the file a second time
        return f"cannot identify it as {', '.join(FORMATS)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return one_line(error)
