"""Embeddings: the numbers that a classifier decides by, of images made ready as the weights themselves say.

Invariance is that of the whole way from the pixels, so images are cropped and resized without preferring a side: margins on
opposite sides are equal, and the resizing is in float64, for Pillow's rounds to 8 bits between its two passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from gcsa.checkpoints import make_classifier, read
from gcsa.export import fold
from gcsa.models.create import in_short


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
        which `gcsa.data.images.read_image` makes such a picture of."""
        if isinstance(image, Image.Image):
            if image.mode not in ("RGB", "L"):
                raise ValueError(
                    f"a picture must be of mode RGB or L, not {image.mode}: read it by gcsa.data.images.read_image"
                )
            image = np.asarray(image.convert("RGB" if len(self.mean) == 3 else "L"))
            image = image.reshape(*image.shape[:2], -1)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != len(self.mean):
            raise ValueError(
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


class Embedder(nn.Module):
    """A classifier without its last layer, in eval mode: normalised images (B, C, H, W) to features (B, `features`).

    Raises ValueError for a model whose features are not one row of numbers for an image, such as one of the unpooled map.

    Attributes:
        prepare: makes a picture ready for the model.
        features: how many numbers an image gives.
    """

    def __init__(self, model: nn.Module, prepare: Prepare) -> None:
        super().__init__()
        self.model, self.prepare = model.eval(), prepare
        parameter = next(model.parameters())
        with torch.no_grad():
            blank = torch.zeros(1, len(prepare.mean), prepare.size, prepare.size, device=parameter.device)
            try:
                found = self(blank)
            except (RuntimeError, AssertionError) as error:
                raise ValueError(
                    f"the model does not take images of {tuple(blank.shape)}: {in_short(error)}"
                ) from error
        if found.ndim != 2:
            raise ValueError(f"the model gives a map of {tuple(found.shape[1:])} and no row of numbers: pool it")
        self.features = found.shape[1]

    def forward(self, images: Tensor) -> Tensor:
        return self.model.forward_head(self.model.forward_features(images), pre_logits=True)  # type: ignore[operator]


def load_embedder(source: str | Path) -> Embedder:
    """The embedder of a folder of weights or of the name of published ones, folded, on the CPU.

    Raises what `gcsa.checkpoints.read` does, and ValueError for weights that do not classify, do not say how images are to be
    normalised, as a .ckpt does not, or are not for square images.
    """
    weights = read(source)
    model = make_classifier(weights)
    told = weights.preprocessing
    missing = [key for key in ("input_size", "mean", "std") if key not in told]
    if missing:
        raise ValueError(
            f"{source} does not say how images are made ready (no {', '.join(missing)}): name the folder of weights that "
            "train.py wrote beside its checkpoints"
        )
    (channels, height, width), mean, std = told["input_size"], told["mean"], told["std"]
    if height != width:
        raise ValueError(f"{source} is for images of {height} x {width}: name weights for square images")
    if not channels == len(mean) == len(std):
        raise ValueError(f"{source} has {channels} channels, but {len(mean)} means and {len(std)} deviations of them")
    return Embedder(fold(model), Prepare(height, mean, std, told.get("pad")))
