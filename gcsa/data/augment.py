"""Random rotations, shifts, scales, reflections, smooth deformations, blur, colours and compression of whole batches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from gcsa._utils.errors import UserError
from gcsa._utils.validation import MAX_SIDE, check_bool, check_float, check_int, is_number, known_options
from gcsa.data.colour import RandomColour
from gcsa.data.compression import RandomJPEG

PADDING_MODES = {"zeros": "constant", "border": "replicate", "reflection": "reflect"}
"""What `grid_sample` calls them, and `pad`."""
CONTROL_POINTS = 5
"""Control points a side of the elastic deformation: smooth over about a fifth of the image."""
MAX_SCALE = 1000
MAX_BLUR = 50
"""Pixels."""


@dataclass(frozen=True)
class RandomAffine:
    """One random affine map and deformation for each image of a batch, in a single bicubic resampling.

    Reflections, rotations by 90 degrees and shifts by whole pixels resample nothing: each pixel keeps its value.

    Args:
        degrees: rotate by an angle uniform in [-degrees, degrees].
        translate: shift along each axis, uniform in [-translate, translate] pixels, before the image is scaled and rotated.
        scale: magnify by a factor uniform in [scale[0], scale[1]].
        flip: reflect left to right with probability one half, exactly.
        quarter_turns: rotate by a random multiple of 90 degrees, exactly.
        shift: move along each axis by a random whole number of pixels in [-shift, shift], exactly.
        elastic: standard deviation in pixels of the displacements at a coarse grid of control points, between
            which they are interpolated (bicubic); Simard et al. 2003, "Best practices for convolutional
            neural networks".
        padding_mode: the values outside the image: "zeros", "border" or "reflection".

    Raises:
        ValueError: an amount that is not a number or negative, a scale that is not 0 < low <= high, an unknown
            padding mode.
    """

    degrees: float = 0.0
    translate: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    flip: bool = False
    quarter_turns: bool = False
    shift: int = 0
    elastic: float = 0.0
    padding_mode: str = "zeros"

    def __post_init__(self) -> None:
        for key, below in (("degrees", math.inf), ("translate", MAX_SIDE), ("elastic", MAX_SIDE)):
            check_float(f"augment.{key}", getattr(self, key), 0, below=below)
        check_int("augment.shift", self.shift, 0, MAX_SIDE)
        for key in ("flip", "quarter_turns"):
            check_bool(f"augment.{key}", getattr(self, key))
        pair = not isinstance(self.scale, str) and isinstance(self.scale, Sequence) and len(self.scale) == 2
        if not pair or not all(is_number(factor) for factor in self.scale):
            raise UserError(f"augment scale={self.scale!r} must be two factors, such as [0.9, 1.1]", "augment.scale")
        if not 0 < self.scale[0] <= self.scale[1] < MAX_SCALE:
            raise UserError(
                f"augment scale={list(self.scale)} must be two factors, 0 < low <= high < {MAX_SCALE}",
                "augment.scale_range",
            )
        if self.padding_mode not in tuple(PADDING_MODES):  # a tuple also takes values without a hash
            raise UserError(
                f"unknown augment padding_mode={self.padding_mode!r}: use {', '.join(PADDING_MODES)}",
                "augment.padding_mode",
            )

    def check_size(self, height: int, width: int) -> None:
        """Raises ValueError for images that are too small for `shift`, or not square, for `quarter_turns`."""
        if self.shift >= min(height, width):
            raise UserError(
                f"augment shift={self.shift} must be below the images' {min(height, width)} pixels a side",
                "augment.shift",
            )
        if self.quarter_turns and height != width:
            raise UserError(
                f"augment quarter_turns=true needs square images, not {height} x {width}", "augment.quarter_turns"
            )

    @torch.no_grad()
    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images (B, C, H, W) to images of the same shape, a function of the state of `generator`."""
        batch, _, height, width = images.shape
        self.check_size(height, width)
        device = images.device

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return torch.empty(batch, *shape).uniform_(low, high, generator=generator).to(device)

        # Every number is drawn whether or not it is used, so that switching one option leaves the others as they are.
        angle = torch.deg2rad(uniform(-self.degrees, self.degrees))
        shift = uniform(-self.translate, self.translate, 2)
        factor = uniform(self.scale[0], self.scale[1])
        flipped = uniform(0, 1) < 0.5
        turns = torch.randint(4, (batch,), generator=generator).to(device)
        control = torch.randn(batch, 2, CONTROL_POINTS, CONTROL_POINTS, generator=generator).to(device)
        corners = torch.randint(2 * self.shift + 1, (batch, 2), generator=generator).to(device)

        if self.flip:
            images = torch.where(flipped.view(-1, 1, 1, 1), images.flip(-1), images)
        if self.quarter_turns:
            images = rotated_by_quarters(images, turns)
        if self.shift:
            padded = F.pad(images, (self.shift,) * 4, mode=PADDING_MODES[self.padding_mode])
            images = cropped(padded, corners, height, width)
        if not (self.degrees or self.translate or self.elastic or tuple(self.scale) != (1, 1)):
            return images

        # affine_grid maps an output position to the input position it shows, in units of half the image.
        pixel = torch.tensor([2 / width, 2 / height], device=device)
        aspect = height / width
        cos, sin = angle.cos() / factor, angle.sin() / factor
        matrix = torch.stack([cos, -sin * aspect, sin / aspect, cos], dim=-1).view(batch, 2, 2)
        grid = F.affine_grid(
            torch.cat([matrix, (shift * pixel)[..., None]], dim=-1), list(images.shape), align_corners=False
        )
        if self.elastic:
            bent = F.interpolate(control, size=(height, width), mode="bicubic", align_corners=True)
            grid = grid + bent.movedim(1, -1) * (self.elastic * pixel)
        # Bicubic: bilinear resampling would blur training images, but not those of validation and test.
        return F.grid_sample(images, grid, mode="bicubic", padding_mode=self.padding_mode, align_corners=False)


@dataclass(frozen=True)
class RandomBlur:
    """Blurs each image of a batch by a Gaussian, as other optics and other resampling would.

    Args:
        blur: the standard deviation is uniform in [0, blur] pixels.

    Raises:
        ValueError: an amount that is not a number from 0 to below `MAX_BLUR`.
    """

    blur: float = 0.0

    def __post_init__(self) -> None:
        check_float("augment.blur", self.blur, 0, below=MAX_BLUR)

    @torch.no_grad()
    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images (B, C, H, W) to images of the same shape, a function of the state of `generator`."""
        if not self.blur:
            return images
        sigma = torch.empty(len(images)).uniform_(0, self.blur, generator=generator)
        return gaussian_blur(images, sigma)


def gaussian_blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Images (B, C, H, W), each blurred by a Gaussian of its own standard deviation (B,) in pixels, borders repeated."""
    batch, channels, height, width = images.shape
    radius = max(1, math.ceil(3 * float(sigma.max())))
    offset = torch.arange(-radius, radius + 1, dtype=images.dtype, device=images.device)
    weight = torch.exp(-0.5 * (offset / sigma.clamp(min=1e-3).to(images)[:, None]) ** 2)
    weight = (weight / weight.sum(1, keepdim=True)).repeat_interleave(channels, 0)
    rows = images.reshape(1, batch * channels, height, width)
    for shape, padding in (
        ((-1, 1, 1, 2 * radius + 1), (radius, radius, 0, 0)),
        ((-1, 1, 2 * radius + 1, 1), (0, 0, radius, radius)),
    ):
        rows = F.conv2d(F.pad(rows, padding, mode="replicate"), weight.view(shape), groups=batch * channels)
    return rows.view_as(images)


@dataclass(frozen=True)
class Augmentation:
    """A `RandomAffine`, then a `RandomBlur`, a `RandomColour` and a `RandomJPEG`."""

    affine: RandomAffine
    blur: RandomBlur
    colour: RandomColour
    compression: RandomJPEG

    def check(self, channels: int, height: int, width: int) -> None:
        """Raises ValueError for images (B, channels, height, width) that it cannot change as it is told to."""
        self.affine.check_size(height, width)
        self.colour.check_channels(channels)
        self.compression.check_channels(channels)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Augmentation":
        """From a mapping of their arguments by name. Raises UserError, with the known names, for an unknown one."""
        affine, blur, colour, compression = known_options((RandomAffine, RandomBlur, RandomColour, RandomJPEG), config)
        return cls(RandomAffine(**affine), RandomBlur(**blur), RandomColour(**colour), RandomJPEG(**compression))

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images (B, C, H, W) to images of the same shape, a function of the state of `generator`."""
        for change in (self.affine, self.blur, self.colour, self.compression):
            images = change(images, generator)
        return images


def rotated_by_quarters(images: Tensor, turns: Tensor) -> Tensor:
    """Images (B, C, H, H), each rotated counter-clockwise by 90 degrees times its own number (B,), exactly."""
    rotated = images.clone()
    for count in (1, 2, 3):
        chosen = turns == count
        rotated[chosen] = images[chosen].rot90(count, (-2, -1))
    return rotated


def cropped(images: Tensor, corners: Tensor, height: int, width: int) -> Tensor:
    """Images (B, C, H, W) cut to (B, C, height, width), each from its own upper left corner, row and column (B, 2)."""
    rows = (corners[:, 0, None] + torch.arange(height, device=images.device))[:, :, None]
    columns = (corners[:, 1, None] + torch.arange(width, device=images.device))[:, None, :]
    image = torch.arange(len(images), device=images.device)[:, None, None]
    return images.movedim(1, -1)[image, rows, columns].movedim(-1, 1).contiguous()
