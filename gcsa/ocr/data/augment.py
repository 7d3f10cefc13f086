"""Mild random changes of whole batches of text lines: what differs between two printings or scans of one line."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from gcsa.data.arguments import check_number, known_options


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

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(f"augment {field.name}", getattr(self, field.name), 0, 45 if field.name == "shear" else 1)

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
        slant, size, offset, thickness = (2 * draws[:4] - 1).unbind()
        if self.shear or self.scale or self.shift:
            # affine_grid maps an output position to the input position it shows, in units of half the image.
            tangent = torch.tan(torch.deg2rad(self.shear * slant.flatten())) * height / width
            factor = 1 / (1 + self.scale * size.flatten())
            one, zero = torch.ones(batch), torch.zeros(batch)
            rows = [one, tangent, zero, zero, factor, 2 * self.shift * offset.flatten()]
            grid = F.affine_grid(torch.stack(rows, 1).view(batch, 2, 3), list(lines.shape), align_corners=False)
            lines = F.grid_sample(lines, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        if self.stroke:
            thick, thin = F.max_pool2d(lines, 3, 1, 1), -F.max_pool2d(-lines, 3, 1, 1)
            lines = torch.lerp(lines, torch.where(thickness > 0, thick, thin), self.stroke * thickness.abs())
        if self.blur:
            blurred = F.avg_pool2d(lines, 3, 1, 1, count_include_pad=False)
            lines = torch.lerp(lines, blurred, self.blur * draws[4])
        lines = lines * (1 - self.contrast * draws[5]) + self.noise * draws[6] * noise
        return lines.clamp(0, 1)
