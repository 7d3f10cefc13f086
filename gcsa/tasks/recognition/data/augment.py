"""Mild random changes of whole batches of text lines: what differs between two printings or scans of one line."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from gcsa._utils.validation import check_float, known_options


@dataclass(frozen=True)
class LineAugment:
    """Slant, height, position, stroke, blur, ink and noise of each line of a batch at random; the size stays.

    Every amount is the largest; the actual one is uniform up to it, and either way where that has a meaning.

    Args:
        shear: slant in degrees.
        scale: higher or lower by this share of the height.
        shift: up or down by this share of the height.
        stroke: strokes thicker or thinner, 1 being a pixel on either side.
        blur: share of the average over 3 x 3 pixels.
        contrast: ink paler by this share.
        noise: standard deviation of Gaussian noise, ink being 1.
        bend: the base line bent up or down in its middle, share of the height.
        fade: ink lost in patches, share of it.
        bleed: ink of another line shining through from the back of the page, mirrored and blurred, share of it.
        upside_down: share of the lines that are turned by 180 degrees, for comparisons: CTC writes from left to right, so a
            network without a group does not learn to read them.

    Raises:
        ValueError: an amount that is not a number, negative or not below 1 (shear: not below 45 degrees).
    """

    shear: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    stroke: float = 0.0
    blur: float = 0.0
    contrast: float = 0.0
    noise: float = 0.0
    bend: float = 0.0
    fade: float = 0.0
    bleed: float = 0.0
    upside_down: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_float(f"augment.{field.name}", getattr(self, field.name), 0, below=45 if field.name == "shear" else 1)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "LineAugment":
        """From a mapping of the arguments; a ValueError lists them where one is unknown."""
        (amounts,) = known_options((cls,), config)
        return cls(**amounts)

    @torch.no_grad()
    def __call__(self, lines: Tensor, generator: Generator) -> Tensor:
        """Ink (B, 1, H, W) in 0..1 to the same, a function of the state of `generator`."""
        batch, _, height, width = lines.shape
        # Every number is drawn whether or not it is used, so that one amount leaves the others alone.
        draws = torch.rand(7, batch, 1, 1, 1, generator=generator)
        noise = torch.randn(lines.shape, generator=generator)
        more = torch.rand(4, batch, 1, 1, 1, generator=generator)
        patches = torch.rand(batch, 1, 3, max(2, width // height + 1), generator=generator)
        turned = torch.rand(batch, 1, 1, 1, generator=generator) < self.upside_down
        slant, size, offset, thickness = (2 * draws[:4] - 1).unbind()
        if self.shear or self.scale or self.shift or self.bend:
            # affine_grid maps an output position to the input position it shows, in units of half the image.
            tangent = torch.tan(torch.deg2rad(self.shear * slant.flatten())) * height / width
            factor = 1 / (1 + self.scale * size.flatten())
            one, zero = torch.ones(batch), torch.zeros(batch)
            rows = [one, tangent, zero, zero, factor, 2 * self.shift * offset.flatten()]
            grid = F.affine_grid(torch.stack(rows, 1).view(batch, 2, 3), list(lines.shape), align_corners=False)
            arc = torch.cos(torch.linspace(-1, 1, width) * (math.pi / 2)).view(1, 1, width)
            grid[..., 1] += 2 * self.bend * (2 * more[0, ..., 0] - 1) * arc
            lines = F.grid_sample(lines, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        if self.stroke:
            thick, thin = F.max_pool2d(lines, 3, 1, 1), -F.max_pool2d(-lines, 3, 1, 1)
            lines = torch.lerp(lines, torch.where(thickness > 0, thick, thin), self.stroke * thickness.abs())
        if self.blur:
            blurred = F.avg_pool2d(lines, 3, 1, 1, count_include_pad=False)
            lines = torch.lerp(lines, blurred, self.blur * draws[4])
        if self.fade:
            lost = F.interpolate(patches, size=(height, width), mode="bilinear", align_corners=False)
            lines = lines * (1 - self.fade * more[1] * lost)
        if self.bleed:
            back = F.avg_pool2d(lines.roll(1, 0).flip(3), 5, 1, 2, count_include_pad=False)
            across = int(more[3, 0] * width)  # the back's words stand elsewhere, and its line higher or lower
            back = back.roll((across, height // 2 if more[3, 0] < 0.5 else 0), (3, 2))
            lines = torch.maximum(lines, self.bleed * more[2] * back)
        lines = lines * (1 - self.contrast * draws[5]) + self.noise * draws[6] * noise
        return torch.where(turned, lines.flip(2, 3), lines).clamp(0, 1)
