"""Upsampling of feature maps (B, H, W, N, C) and fusion with finer ones, as in a decoder (Ronneberger et al. 2015,
U-Net, arXiv:1505.04597).

Bilinear interpolation between pixel centres treats all sides of an image alike, so it commutes with rotations by 90 degrees and
reflections for any size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.norm import FieldNorm


def upsample(x: Tensor, scale: int) -> Tensor:
    """Bilinear interpolation of maps (B, H, W, N, C) to (B, scale * H, scale * W, N, C)."""
    # By a constant scale, with which onnxruntime stays in the layout of its convolutions.
    image = F.interpolate(to_nchw(x), scale_factor=float(scale), mode="bilinear", align_corners=False)
    return from_nchw(image, x.shape[3])


class Fusion(nn.Module):
    """Upsamples a coarse map to the size of a finer one, and adds 1 x 1 group convolutions of both.

    This equals a 1 x 1 convolution of their concatenation. The coarse map is convolved before the upsampling, where it is
    smaller. Scalar fields (N = 1) of the finer map count as regular fields that are constant along the group. The finer map has
    `scale` times the sides of the coarse one.
    """

    def __init__(
        self,
        fields: int,
        skip_fields: int,
        out_fields: int,
        group: str | Group,
        scale: int = 2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        group = make_group(group)
        self.order, self.scale = group.order, scale
        self.coarse = SteerableConv2d(fields, out_fields, 1, group, bias=False, **factory)
        self.norm = FieldNorm(skip_fields, group.order, **factory)
        self.skip = SteerableConv2d(skip_fields, out_fields, 1, group, **factory)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """A map x (B, h, w, N, C) and a finer one, `skip` (B, H, W, N, C'), to (B, H, W, N, out_fields)."""
        skip = skip.expand(-1, -1, -1, self.order, -1)
        return upsample(self.coarse(x), self.scale) + self.skip(self.norm(skip))
