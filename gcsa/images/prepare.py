"""What makes a picture ready for a classifier.

Invariance is that of the whole way from the pixels, so images are cropped and resized without preferring a side: margins on
opposite sides are equal, and the resizing is in float64, for Pillow's rounds to 8 bits between its two passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from gcsa._utils.errors import UserError

PADS = (None, "white", "black")
"""Colours of the border that makes an image a square; None: it is cropped at its centre."""


@dataclass(frozen=True)
class Prepare:
    """Makes a picture ready for a model: cropped at the centre to a square, or with `pad`, "white" or "black", filled up to one;
    resized to `size` pixels a side, and normalised by the `mean` and `std` of each channel on the 0..1 scale."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: str | None = None

    def __call__(self, image: Image.Image | np.ndarray[Any, Any]) -> Tensor:
        """A picture of mode RGB or L, or its pixels uint8 (H, W, C), to float32 (C, size, size). Raises ValueError for others,
        which `gcsa.images.reader.read_image` makes such a picture of."""
        if isinstance(image, Image.Image):
            if image.mode not in ("RGB", "L"):
                raise UserError(
                    f"a picture must be of mode RGB or L, not {image.mode}: read it by gcsa.images.reader.read_image"
                )
            image = np.asarray(image.convert("RGB" if len(self.mean) == 3 else "L"))
            image = image.reshape(*image.shape[:2], -1)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != len(self.mean):
            raise UserError(
                f"pixels must be uint8 of shape (height, width, {len(self.mean)}), not {image.dtype} of {image.shape}"
            )
        pixels = _square(torch.tensor(image).permute(2, 0, 1), self.pad).double()
        if pixels.shape[1:] != (self.size, self.size):
            sides = (self.size, self.size)
            pixels = F.interpolate(pixels[None], sides, mode="bicubic", antialias=True)[0].clamp(0, 255)
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (pixels.float() / 255 - mean) / std


def _square(pixels: Tensor, pad: str | None) -> Tensor:
    """The centre of (C, H, W), or with `pad` all of it. Where margins cannot be equal, there is one pixel more, and the square is
    stretched by it."""
    height, width = pixels.shape[1:]
    if pad is not None:
        rows, columns = -(-max(width - height, 0) // 2), -(-max(height - width, 0) // 2)
        return F.pad(pixels, (columns, columns, rows, rows), value=255 if pad == "white" else 0)
    top, left = max(height - width, 0) // 2, max(width - height, 0) // 2
    return pixels[:, top : height - top, left : width - left]
