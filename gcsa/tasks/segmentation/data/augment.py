"""Random geometry, colours, blur and noise of a crop, the same geometry for the image and its labels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float, known_options
from gcsa.data.augment import RandomAffine, gaussian_blur
from gcsa.data.colour import stained

MAX_FACTOR = 1000.0
SPECK = 10
"""Pixels: smaller ones have no shape left to learn from."""


@dataclass(frozen=True)
class DenseAugment:
    """One random geometry for an image and its labels, then random colours, blur and noise of the image.

    Reflections and rotations by 90 degrees resample nothing: each pixel keeps its value. `degrees` resamples about the centre: the
    image bilinearly, the labels by the nearest pixel, and both are 0 beyond the border. `scale` is for `Crops`, which cut a larger
    or smaller window.

    Args:
        quarter_turns: turn by a random multiple of 90 degrees, exactly; needs square crops.
        flip: reflect left to right with probability one half, exactly.
        degrees: rotate by an angle uniform in [-degrees, degrees].
        scale: magnify by a factor between these two, its logarithm uniform.
        brightness: add an amount uniform in [-brightness, brightness], the image's range being about 0..1.
        contrast: before that, multiply by a factor uniform in [1 - contrast, 1 + contrast].
        noise: add Gaussian noise whose standard deviation is uniform in [0, noise].
        blur: blur by a Gaussian whose standard deviation is uniform in [0, blur] pixels.
        stain: of histology: change the amount of each stain as `RandomColour` does, and cut the image to 0..1. Grey images stay as
            they are.
        tint: multiply each channel of a grey image by a factor uniform in [1 - tint, 1].
        invert: share of the images that become their negative.

    Raises:
        ValueError: an amount that is not a number, negative or not below its limit, a scale that is not
            0 < low <= high.
    """

    quarter_turns: bool = False
    flip: bool = False
    degrees: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    brightness: float = 0.0
    contrast: float = 0.0
    noise: float = 0.0
    blur: float = 0.0
    stain: float = 0.0
    tint: float = 0.0
    invert: float = 0.0

    def __post_init__(self) -> None:
        RandomAffine(degrees=self.degrees, scale=self.scale, flip=self.flip, quarter_turns=self.quarter_turns)
        limits = {"brightness": MAX_FACTOR, "contrast": 1, "noise": MAX_FACTOR, "blur": 20, "stain": 1, "tint": 1}
        for key, below in limits.items():
            check_float(f"augment.{key}", getattr(self, key), 0, below=below)
        check_float("augment.invert", self.invert, 0, 1)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "DenseAugment":
        """From a mapping of the arguments; a ValueError lists them where one is unknown."""
        (options,) = known_options((cls,), config)
        return cls(**options)

    def magnification(self, generator: Generator) -> float:
        """A factor from the range of `scale`."""
        low, high = map(math.log, self.scale)
        return math.exp(low + (high - low) * float(torch.rand((), generator=generator)))

    @torch.no_grad()
    def __call__(self, image: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """A normalised image float32 (C, H, W) and labels int32 (H, W) to the same, a function of `generator`'s state.

        Raises ValueError for `quarter_turns` of what is not square.
        """
        height, width = labels.shape
        if self.quarter_turns and height != width:
            raise UserError(
                f"augment quarter_turns=true needs square crops, not {height} x {width}", "augment.quarter_turns"
            )
        # Every number is drawn whether or not it is used, so that switching one option leaves the others alone.
        mirrored, degrees, factor, offset, deviation = torch.rand(5, generator=generator).tolist()
        turns = int(torch.randint(4, (), generator=generator))
        sigma, negative, *shares = torch.rand(11, generator=generator).unbind()
        if self.flip and mirrored < 0.5:
            image, labels = image.flip(-1), labels.flip(-1)
        if self.quarter_turns:
            image, labels = image.rot90(turns, (-2, -1)), labels.rot90(turns, (-2, -1))
        if self.degrees:
            image, labels = rotated(image, labels, math.radians(self.degrees * (2 * degrees - 1)))
        image = self._coloured(image, torch.stack(shares))
        if negative < self.invert:
            image = 1 - image
        if self.contrast:
            image = image * (1 + self.contrast * (2 * factor - 1))
        if self.brightness:
            image = image + self.brightness * (2 * offset - 1)
        if self.blur:
            image = gaussian_blur(image[None], self.blur * sigma[None])[0]
        if self.noise:
            image = image + self.noise * deviation * torch.randn(image.shape, generator=generator)
        return image.contiguous(), labels.contiguous()

    def _coloured(self, image: Tensor, shares: Tensor) -> Tensor:
        """An image (C, H, W) with `stain` or `tint`, by nine `shares` uniform in [0, 1)."""
        if len(image) != 3 or not (self.stain or self.tint):
            return image
        if bool((image == image[:1]).all()):
            return image * (1 - self.tint * shares[:3, None, None])
        factor, offset = (self.stain * (2 * part.view(1, 3, 1, 1) - 1) for part in (shares[3:6], shares[6:]))
        return stained(image[None], 1 + factor, offset)[0].clamp(0, 1) if self.stain else image


def resized(image: Tensor, labels: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """An image (C, S, S) and labels (S, S) with `side` pixels a side: the image smoothed where it shrinks, each label that of the
    nearest pixel. Objects that shrink to less than `SPECK` pixels become background."""
    if side == len(labels):
        return image, labels
    smooth = F.interpolate(image[None], size=(side, side), mode="bilinear", antialias=True)[0]
    # In 64 bits, which hold every label exactly.
    nearest = F.interpolate(labels[None, None].double(), size=(side, side), mode="nearest-exact")[0, 0]
    if side < len(labels):
        numbers, places, counts = nearest.unique(return_inverse=True, return_counts=True)
        nearest = torch.where(counts < SPECK, 0.0, numbers)[places]
    return smooth, nearest.to(labels.dtype)


def rotated(image: Tensor, labels: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    """An image (C, H, W) and labels (H, W) rotated by `angle` (radians, counter-clockwise) about the centre.

    The image is interpolated bilinearly, each label is that of the nearest pixel, and both are 0 beyond the border.
    """
    height, width = labels.shape
    # affine_grid maps an output position to the input position it shows, in units of half the image.
    cos, sin = math.cos(angle), math.sin(angle)
    matrix = torch.tensor([[[cos, -sin * height / width, 0], [sin * width / height, cos, 0]]], dtype=torch.float64)
    grid = F.affine_grid(matrix, [1, 1, height, width], align_corners=False)
    # In 64 bits, which hold every label exactly.
    smooth = F.grid_sample(image[None].double(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    nearest = F.grid_sample(
        labels[None, None].double(), grid, mode="nearest", padding_mode="zeros", align_corners=False
    )
    return smooth[0].to(image.dtype), nearest[0, 0].to(labels.dtype)
