"""Small models whose answers are known, and data in memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gcsa.groups import group as make_group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.layout import to_nchw


class Steerable(nn.Module):
    """A lifting and a group convolution, pooled to 3 invariant logits; `broken` adds a ramp from left to right."""

    def __init__(self, group: str = "c8", broken: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.group = make_group(group)
        self.order = self.group.order
        self.lift = SteerableConv2d(1, 4, 5, group, lift=True)
        self.conv = SteerableConv2d(4, 3, 5, group)
        self.broken = broken
        self.num_classes, self.in_chans = 3, 1

    def forward_intermediates(self, x: Tensor, output_fmt: str, intermediates_only: bool) -> list[Tensor]:
        lifted = self.lift(x)
        if self.broken:
            lifted = lifted + torch.linspace(0, 1, x.shape[-1])[:, None, None]
        return [to_nchw(lifted), to_nchw(self.conv(lifted.relu()))]

    def forward(self, x: Tensor) -> Tensor:
        last = self.forward_intermediates(x, "NCHW", True)[-1]
        return last.unflatten(1, (self.order, -1)).relu().mean((1, 3, 4))


class BrightHalf(nn.Module):
    """Class 1 where the right half of the image is the brighter one, else class 0: knows what is right and left."""

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], 1)


class Brightness(nn.Module):
    """Logits (sum, -sum) of the pixels: no turn and no cyclic shift changes them."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.sum((1, 2, 3))
        return torch.stack([total, -total], 1)


def half_bright_images(count: int = 8, size: int = 12) -> tuple[Tensor, Tensor]:
    """Images (count, 1, size, size) with one bright spot right of the middle, and their labels, all 1."""
    images = torch.zeros(count, 1, size, size)
    images[:, :, size // 2 - 1 : size // 2 + 1, size - 4 : size - 2] = 1
    return images, torch.ones(count, dtype=torch.int64)
