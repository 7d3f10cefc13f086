"""Random rotations, reflections, scales, brightness and noise of a crop, the same geometry for the image and its labels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float, known_options
from gcsa.tasks.classification.data.augment import RandomAffine

MAX_FACTOR = 1000.0


@dataclass(frozen=True)
class DenseAugment:
    """One random geometry for an image and its labels, then random brightness, contrast and noise of the image.

    Reflections and rotations by 90 degrees resample nothing: each pixel keeps its value. `degrees` and `scale` resample once, about
    the centre: the image bilinearly, the labels by the nearest pixel of the same grid, and both are 0 beyond the border.

    Args:
        quarter_turns: turn by a random multiple of 90 degrees, exactly; needs square crops.
        flip: reflect left to right with probability one half, exactly.
        degrees: rotate by an angle uniform in [-degrees, degrees].
        scale: magnify by a factor uniform in [scale[0], scale[1]].
        brightness: add an amount uniform in [-brightness, brightness], the image's range being about 0..1.
        contrast: before that, multiply by a factor uniform in [1 - contrast, 1 + contrast].
        noise: add Gaussian noise whose standard deviation is uniform in [0, noise].

    Raises:
        ValueError: an amount that is not a number, negative or (contrast) not below 1, a scale that is not
            0 < low <= high.
    """

    quarter_turns: bool = False
    flip: bool = False
    degrees: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    brightness: float = 0.0
    contrast: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        RandomAffine(degrees=self.degrees, scale=self.scale, flip=self.flip, quarter_turns=self.quarter_turns)
        for key, below in (("brightness", MAX_FACTOR), ("contrast", 1), ("noise", MAX_FACTOR)):
            check_float(f"augment {key}", getattr(self, key), 0, below=below)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "DenseAugment":
        """From a mapping of the arguments; a ValueError lists them where one is unknown."""
        (options,) = known_options((cls,), config)
        return cls(**options)

    @torch.no_grad()
    def __call__(self, image: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """A normalised image float32 (C, H, W) and labels int32 (H, W) to the same, a function of `generator`'s state.

        Raises ValueError for `quarter_turns` of what is not square.
        """
        height, width = labels.shape
        if self.quarter_turns and height != width:
            raise UserError(f"augment quarter_turns=true needs square crops, not {height} x {width}")
        # Every number is drawn whether or not it is used, so that switching one option leaves the others alone.
        mirrored, degrees, magnify, factor, offset, deviation = torch.rand(6, generator=generator).tolist()
        turns = int(torch.randint(4, (), generator=generator))
        if self.flip and mirrored < 0.5:
            image, labels = image.flip(-1), labels.flip(-1)
        if self.quarter_turns:
            image, labels = image.rot90(turns, (-2, -1)), labels.rot90(turns, (-2, -1))
        if self.degrees or tuple(self.scale) != (1, 1):
            low, high = self.scale
            angle = math.radians(self.degrees * (2 * degrees - 1))
            image, labels = resampled(image, labels, angle, low + (high - low) * magnify)
        if self.contrast:
            image = image * (1 + self.contrast * (2 * factor - 1))
        if self.brightness:
            image = image + self.brightness * (2 * offset - 1)
        if self.noise:
            image = image + self.noise * deviation * torch.randn(image.shape, generator=generator)
        return image.contiguous(), labels.contiguous()


def resampled(image: Tensor, labels: Tensor, angle: float, factor: float) -> tuple[Tensor, Tensor]:
    """An image (C, H, W) and labels (H, W) rotated by `angle` (radians, counter-clockwise) about the centre and magnified.

    The image is interpolated bilinearly, each label is that of the nearest pixel, and both are 0 beyond the border.
    """
    height, width = labels.shape
    # affine_grid maps an output position to the input position it shows, in units of half the image.
    cos, sin = math.cos(angle) / factor, math.sin(angle) / factor
    matrix = torch.tensor([[[cos, -sin * height / width, 0], [sin * width / height, cos, 0]]], dtype=torch.float64)
    grid = F.affine_grid(matrix, [1, 1, height, width], align_corners=False)
    # In 64 bits, which hold every label exactly.
    smooth = F.grid_sample(image[None].double(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    nearest = F.grid_sample(
        labels[None, None].double(), grid, mode="nearest", padding_mode="zeros", align_corners=False
    )
    return smooth[0].to(image.dtype), nearest[0, 0].to(labels.dtype)
