"""An image becomes the input of a classifier: in training, in gcsa evaluate, in gcsa embed and in `predict`.

The input of a rotated or reflected image is the rotated or reflected input, exactly. So margins on opposite sides are
equal, and values are resized in float64 and rounded once: Pillow rounds to 8 bits between its two passes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.validation import is_number, shown
from gcsa.images.choices import MPP_RANGE
from gcsa.images.pixels import from_pillow, naming, to_8_bits
from gcsa.images.reader import read_image
from gcsa.images.source import ImageSource

PADS = (None, "white", "black")
"""Colours of the border that makes an image a square; None: it is cropped at its centre."""
MOST_NUMBERS = 1 << 28
"""Of a batch: a gigabyte of float32. The file of weights, not the user, says how large an image of a batch is."""


@dataclass(frozen=True)
class Prepare:
    """Makes an image a normalised square.

    Args:
        size: pixels a side.
        mean, std: of each channel, on the 0..1 scale; three channels are colour, one is grey.
        pad: "white" or "black" fills the image up to a square; None crops it at its centre.
        mpp: micrometres a pixel of the images in training; None where that has no meaning or is not known.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: str | None = None
    mpp: float | None = None

    def together(self, most: int) -> int:
        """How many images are in a batch: at most so many, and of at most `MOST_NUMBERS` numbers, but one at least."""
        return max(1, min(most, MOST_NUMBERS // (len(self.mean) * self.size**2)))

    @classmethod
    def from_weights(cls, source: str, preprocessing: Mapping[str, Any]) -> Prepare:
        """From what weights say of their images. Raises UserError, naming `source`, where that is incomplete or cannot be."""
        if missing := [key for key in ("input_size", "mean", "std") if key not in preprocessing]:
            raise UserError(
                f"{source} does not say how images are made ready (no {', '.join(missing)}): name the folder of weights "
                "that train.py wrote",
                "weights.preprocessing",
            )
        (channels, height, width), mean, std = (preprocessing[key] for key in ("input_size", "mean", "std"))
        if height != width:
            raise UserError(
                f"{source} is for images of {height} x {width}: name weights for square images", "weights.not_square"
            )
        if not channels == len(mean) == len(std):
            raise UserError(
                f"{source} has {channels} channels, but {len(mean)} means and {len(std)} standard deviations",
                "weights.channels",
            )
        pad, mpp = preprocessing.get("pad"), preprocessing.get("mpp")
        if pad not in PADS:
            raise UserError(
                f"{source} cannot be read: its pad is {shown(pad)}, not one of {', '.join(map(str, PADS))}",
                "weights.pad",
            )
        if mpp is not None and not is_number(mpp, *MPP_RANGE):
            least, most = MPP_RANGE
            raise UserError(
                f"{source} cannot be read: its mpp is {shown(mpp)}, not micrometres from {least} to {most:g}",
                "weights.mpp",
            )
        return cls(height, tuple(mean), tuple(std), pad, None if mpp is None else float(mpp))

    def __call__(self, image: Any) -> Tensor:
        """An image, as `to_image` takes it, to float32 (C, size, size)."""
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (self.square(image).float() / 255 - mean) / std

    def square(self, image: Any) -> Tensor:
        """An image, as `to_image` takes it, to uint8 (C, size, size), not normalised."""
        pixels = np.asarray(to_image(image, len(self.mean)))
        square = _square(torch.tensor(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1), self.pad).contiguous()
        if square.shape[1:] == (self.size, self.size):
            return square
        values = F.interpolate(square[None].double(), (self.size, self.size), mode="bicubic", antialias=True)[0]
        # The passes of a rotated image run in another order, so its halves may differ by 1e-13: all are rounded up.
        return (values + (0.5 + 1e-6)).floor().clamp(0, 255).byte()


def to_image(image: Any, channels: int) -> Image.Image:
    """An image of mode RGB (`channels` 3) or L (1).

    Args:
        image: a path, an open image, a PIL image of any mode, an array (H, W) or (H, W, C), or a tensor (C, H, W), uint8 or floating
            point in 0..1; C is 1 or 3.

    Raises:
        UserError: a file that cannot be read, naming it, and other arrays and tensors.
    """
    if isinstance(image, str | os.PathLike | ImageSource):
        return read_image(image, channels)
    if isinstance(image, Tensor):
        image = image.detach().cpu()
        image = image.float() if image.is_floating_point() else image  # NumPy has no bfloat16
        image = (image.movedim(0, -1) if image.ndim == 3 else image).numpy()
    if isinstance(image, np.ndarray):
        if np.issubdtype(image.dtype, np.floating):
            if not (image.min() >= 0 and image.max() <= 1):
                raise UserError(
                    f"pixels of floats must lie in 0..1, not in {image.min():g}..{image.max():g}", "image.range"
                )
            image = (image * 255).round().astype(np.uint8)
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3)):
            raise UserError(
                f"pixels must be uint8 (H, W), (H, W, 1) or (H, W, 3), or floats in 0..1, not {image.dtype} {image.shape}",
                "image.array",
            )
        image = Image.fromarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image)
    if not isinstance(image, Image.Image):
        raise UserError(
            f"an image must be a path, an array, a PIL image or a tensor, not {type(image).__name__}", "image.type"
        )
    with naming("the image"):
        return to_8_bits(from_pillow(ImageOps.exif_transpose(image)), channels)


def _square(pixels: Tensor, pad: str | None) -> Tensor:
    """The centre of (C, H, W), or with `pad` all of it. Where margins cannot be equal, one side is longer by one pixel."""
    height, width = pixels.shape[1:]
    if pad is not None:
        rows, columns = -(-max(width - height, 0) // 2), -(-max(height - width, 0) // 2)
        return F.pad(pixels, (columns, columns, rows, rows), value=255 if pad == "white" else 0)
    top, left = max(height - width, 0) // 2, max(width - height, 0) // 2
    return pixels[:, top : height - top, left : width - left]
