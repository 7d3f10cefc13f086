"""Microscopy pictures at their full precision, and their label maps."""

import os
from pathlib import Path

import numpy as np

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.reader import GREY
from gcsa.images.stored import read_stored, stored_size

LARGEST_LABEL = 2**31 - 1


def read_picture(path: str | os.PathLike[str], channels: int) -> Array:
    """A picture (H, W, channels) in uint8, uint16 or float32, its values as the file stores them.

    With `channels` 3, grey is repeated; with 1, colours become grey (luma, rounded in whole numbers). Alpha is dropped.
    The picture stands as its camera held it, as in `gcsa.images.reader.read_image`: an EXIF or TIFF orientation is applied,
    which microscopes do not write.

    Raises:
        ValueError: naming the file: it cannot be decoded, holds more than one plane or channels that are not 1, 3 or 4,
            too many pixels, or values that none of the three types holds.
    """
    values = _typed(read_stored(Path(path)), path)
    if values.ndim == 2:
        return np.repeat(values[..., None], channels, axis=2)
    if channels == 3:
        return values
    red, green, blue = (weight * values[..., i].astype(np.float64) for i, weight in enumerate(GREY))
    grey = red + green + blue
    return (grey if values.dtype == np.float32 else grey.round()).astype(values.dtype)[..., None]


def read_labels(path: str | os.PathLike[str]) -> Array:
    """A label map (H, W) in int32, 0 where there is no object; of a palette, the indices.

    Raises:
        ValueError: naming the file: as `read_picture`, or colours, fractions, negative or too large labels, or a format
            whose compression changes labels.
    """
    values = read_stored(Path(path), labels=True)
    if values.ndim != 2:
        raise UserError(f"{path} is in colour: a mask must be a label map of one channel, 0 for background")
    if values.dtype.kind not in "bui":
        raise UserError(f"{path} holds {values.dtype} values: a mask must hold whole numbers, 0 for background")
    if values.size and (values.min() < 0 or values.max() > LARGEST_LABEL):
        raise UserError(
            f"{path} holds labels in {values.min()}..{values.max()}: they must lie in 0..{LARGEST_LABEL}, 0 for background"
        )
    return values.astype(np.int32)


def check_pair(image: str | os.PathLike[str], mask: str | os.PathLike[str]) -> None:
    """Raises ValueError, from the headers alone, where image and mask differ in size or one cannot be read."""
    check_sizes(image, stored_size(Path(image)), mask, stored_size(Path(mask)))


def check_sizes(
    image: str | os.PathLike[str], size: tuple[int, ...], mask: str | os.PathLike[str], mask_size: tuple[int, ...]
) -> None:
    """Raises ValueError where the sizes, height and width, of image and mask differ."""
    if size != mask_size:
        here, there = (" x ".join(map(str, pair)) for pair in (size, mask_size))
        raise UserError(f"{image} is {here} pixels and its mask {mask} {there}: both must have one height and width")


def _typed(values: Array, path: str | os.PathLike[str]) -> Array:
    """The same values in uint8, uint16 or float32."""
    if values.dtype in (np.uint8, np.uint16):
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    if values.dtype.kind == "f" and np.isfinite(values).all():
        return values.astype(np.float32, copy=False)
    if values.dtype.kind == "f":
        raise UserError(f"{path} holds values that are not finite: replace them, or leave the picture out")
    if values.dtype.kind in "ui" and values.size and values.min() >= 0 and values.max() <= 65535:
        return values.astype(np.uint16)
    raise UserError(f"{path} holds {values.dtype} values beyond 0..65535: save it in 16 bits or as 32-bit floats")
