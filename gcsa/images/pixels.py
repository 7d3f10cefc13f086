"""The values of a picture as its file stores them, and the two views of them.

One view has 8 bits, for classification and text (`to_8_bits`, `to_grey`). The other has the depth of the file, for segmentation
(`to_picture`). Both start from the same `Pixels`, so that no two tasks see one file differently.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFile

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, one_line, reworded

MAX_PIXELS = 150_000_000
"""Of a picture: a sheet of A2 scanned at 600 dpi has 139 million. Colour takes up to 20 bytes for each while it is read."""
MAX_DEEP_PIXELS = MAX_PIXELS // 2
"""Of a picture of more than 8 bits."""
GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in grey (luma of ITU-R BT.601), as Pillow converts."""
ROWS = 256
"""Rows that are converted at a time, in 32-bit floats."""


NO_DATA = 1e30
"""Floats from here on are no brightness."""


class Refused(UserError):
    """A file that can be decoded and is not used: what it holds and what would work, to be put behind its name."""


class Pixels(NamedTuple):
    """values: (H, W) grey or (H, W, 3) red, green, blue, in the type of the file, black the least.
    white: the value of white; None for floats and 32 bits, where files do not state it.
    alpha: (H, W), from 0, transparent, to `opaque`.
    premultiplied: whether the values are multiplied by alpha already.
    """

    values: Array
    white: int | None
    alpha: Array | None = None
    premultiplied: bool = False

    @property
    def is_deep(self) -> bool:
        return self.white is None or self.white > 255

    @property
    def opaque(self) -> int:
        """The largest alpha."""
        if self.white is not None or self.values.dtype.kind == "f":
            return self.white or 1
        return int(np.iinfo(self.values.dtype).max)

    def upright(self, orientation: int) -> Pixels:
        """The picture as an EXIF or TIFF orientation from 1 to 8 says that it should be seen; other numbers mean nothing."""
        alpha = None if self.alpha is None else oriented(self.alpha, orientation)
        return self._replace(values=oriented(self.values, orientation), alpha=alpha)


def oriented(values: Array, orientation: int) -> Array:
    """Values (H, W, ...) after the orientation 1 to 8 of EXIF and TIFF is applied."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    return np.ascontiguousarray(values)


def from_pillow(image: Image.Image, *, labels: bool = False) -> Pixels:
    """The pixels of a decoded image of Pillow. With `labels`, those of a palette are its indices.

    Raises:
        ValueError: a mode without a conversion to grey or RGB (LAB).
    """
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        return Pixels(values.astype(values.dtype.newbyteorder("="), copy=False), 65535 if ";16" in image.mode else None)
    if labels and image.mode in ("1", "L", "P"):
        return Pixels(np.asarray(image), 1 if image.mode == "1" else 255)
    if image.mode in ("1", "L", "P", "PA", "RGB") and image.has_transparency_data:
        image = image.convert("RGBA")
    if image.mode in ("P", "RGBX", "YCbCr", "HSV"):
        image = image.convert("RGB")
    if image.mode not in ("1", "L", "LA", "La", "RGB", "RGBA", "RGBa", "CMYK"):
        raise Refused(f"stores its colours as {image.mode}: save it in grey or RGB", "image.colours", mode=image.mode)
    values = np.asarray(image)
    if image.mode == "CMYK":
        return Pixels(cmyk_to_rgb(values, 255), 255)
    if image.mode in ("LA", "La", "RGBA", "RGBa"):
        return with_alpha(values, 255, premultiplied=image.mode.endswith("a"))
    return Pixels(values, 1 if image.mode == "1" else 255)


def with_alpha(values: Array, white: int | None, *, premultiplied: bool = False) -> Pixels:
    """Pixels of values (H, W, 2 or 4), the last of which is alpha."""
    colours = values[..., 0] if values.shape[2] == 2 else values[..., :3]
    return Pixels(colours, white, values[..., -1], premultiplied)


def cmyk_to_rgb(values: Array, white: int) -> Array:
    """Values (H, W, 4) of cyan, magenta, yellow and black to (H, W, 3): (1 - c) (1 - k), rounded, as Pillow converts."""
    out = np.empty((*values.shape[:2], 3), values.dtype)
    for top in range(0, len(values), ROWS):
        paper = white - values[top : top + ROWS].astype(np.float64)
        out[top : top + ROWS] = (paper[..., :3] * paper[..., 3:] / white).round()
    return out


def to_8_bits(pixels: Pixels, channels: int) -> Image.Image:
    """An image of mode RGB (`channels` 3) or L (1), scaled as `brightness` defines."""
    return Image.fromarray(brightness(pixels, np.uint8)).convert("RGB" if channels == 3 else "L")


def to_grey(pixels: Pixels) -> Array:
    """Grey values (H, W) from 0, black, to 255: uint8, or float32 where the picture has more than 8 bits."""
    grey = brightness(pixels, np.float32 if pixels.is_deep else np.uint8)
    if grey.ndim == 2:
        return grey
    return grey @ np.array(GREY, np.float32) if pixels.is_deep else np.asarray(Image.fromarray(grey).convert("L"))


def brightness(pixels: Pixels, dtype: type[np.generic]) -> Array:
    """Values from 0, black, to 255, white, in uint8 (rounded) or float32, of the shape of `pixels.values`.

    Transparency is laid on white. White is the largest number of up to 16 bits, so that what a 12-bit camera stored unscaled in 16
    is dark. For 32 bits, of which files do not state the range, white is 1 where no value is above 1 (floats only), else 255 where
    none is above 255 (floats only), else 65535 or the largest value.

    Raises:
        ValueError: values that are not finite, or negative.
    """
    values, alpha = pixels.values, pixels.alpha
    if values.dtype == dtype == np.uint8 and pixels.white == 255 and alpha is None:
        return values
    white = float(pixels.white or 0)
    if not white:
        top = float(values.max())
        if values.dtype.kind not in "fui" or not np.isfinite(values).all() or values.min() < 0:
            raise Refused(
                f"holds values in {values.min():g}..{top:g}: they must lie between 0 and a finite number", "image.range"
            )
        whites = (1.0, 255.0, 65535.0, top) if values.dtype.kind == "f" else (65535.0, top)
        _check_outliers(values)
        white = next(white for white in whites if top <= white)
    out = np.empty(values.shape, dtype)
    for start in range(0, len(values), ROWS):
        rows = slice(start, start + ROWS)
        part = values[rows].astype(np.float32) * np.float32(255 / white)
        if alpha is not None:
            share = alpha[rows].astype(np.float32) / np.float32(pixels.opaque)
            share = share if values.ndim == 2 else share[..., None]
            part = (part if pixels.premultiplied else part * share) + 255 * (1 - share)
        out[rows] = part.round().clip(0, 255) if dtype == np.uint8 else part
    return out


def to_picture(pixels: Pixels, channels: int) -> Array:
    """Values (H, W, channels) in uint8, uint16 or float32, not scaled. Grey is repeated, or colours become grey (luma); alpha is
    dropped.

    Raises:
        ValueError: values that none of the three types holds.
    """
    values = _typed(pixels.values)
    if values.ndim == 2:
        return np.repeat(values[..., None], channels, axis=2)
    if channels == 3:
        return values
    out = np.empty((*values.shape[:2], 1), values.dtype)
    for start in range(0, len(values), ROWS):
        red, green, blue = (
            weight * values[start : start + ROWS, :, i].astype(np.float64) for i, weight in enumerate(GREY)
        )
        grey = red + green + blue
        out[start : start + ROWS, :, 0] = grey if values.dtype == np.float32 else grey.round()
    return out


def _typed(values: Array) -> Array:
    """The same values in uint8, uint16 or float32."""
    if values.dtype in (np.uint8, np.uint16):
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    if values.dtype.kind == "f" and np.isfinite(values).all():
        _check_outliers(values)
        return values.astype(np.float32, copy=False)
    if values.dtype.kind == "f":
        raise Refused("holds values that are not finite: replace them, or leave the image out", "image.not_finite")
    if values.dtype.kind in "ui" and values.size and values.min() >= 0 and values.max() <= 65535:
        return values.astype(np.uint16)
    raise Refused(
        f"holds {values.dtype} values beyond 0..65535: save it in 16 bits or as 32-bit floats", "image.beyond_16_bits"
    )


def _check_outliers(values: Array) -> None:
    """Raises Refused for a number that marks where there are no data, and would be the white of the picture."""
    if values.dtype.kind == "f" and values.size and (largest := float(np.abs(values).max())) >= NO_DATA:
        raise Refused(
            f"holds the value {largest:g}, as files do where they have no data: say so by GDAL's tag of no data, or replace it",
            "image.no_data",
        )


def check_pixels(height: int, width: int, deep: bool) -> None:
    """Raises ValueError for more pixels than are held in memory."""
    most = MAX_DEEP_PIXELS if deep else MAX_PIXELS
    if height * width > most:
        raise Refused(f"holds {height} x {width} pixels, above {most:,}: cut it into tiles", "image.too_large")


@contextmanager
def naming(path: str | PathLike[str]) -> Iterator[None]:
    """Turns whatever is wrong with a picture into a UserError of one sentence that names its file.

    A cut file is wrong, although another package (lightly-train) makes Pillow fill up such files in the whole process.
    """
    fills_up, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about size and metadata, without the name of the file
            yield
    except Refused as error:
        raise reworded(error, f"{path} {error}", "image") from error
    except (MemoryError, UserError):  # a UserError names its file already
        raise
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise UserError(
            f"{path} holds more than {most:,} pixels: cut it into tiles, or save it as a tiled TIFF",
            "image.too_large",
        ) from error
    except Exception as error:  # decoders raise what they stumble over: KeyError, struct.error, zlib.error ...
        reason = getattr(error, "strerror", None) or one_line(error)
        raise UserError(
            f"{path} cannot be read as an image ({reason}): remove or replace it", "image.unreadable"
        ) from error
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = fills_up


def is_grey(picture: Array) -> bool:
    """Whether all channels of a picture (H, W, C) are equal."""
    return bool((picture == picture[..., :1]).all())
