"""Upsampling of feature maps (B, H, W, N, C) and fusion with finer ones, as in a decoder (Ronneberger et al. 2015,
U-Net, arXiv:1505.04597).

Bilinear interpolation between pixel centres treats all sides of an image alike, so it commutes with rotations by 90 degrees and
reflections for any size. So does a transposed group convolution with a kernel centred on its output pixels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.validation import check_int
from gcsa.groups import Group, group as make_group
from gcsa.layers.conv import SteerableConv2d, kernel_for_stride
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.norm import FieldNorm


def upsample(x: Tensor, height: int, width: int) -> Tensor:
    """Bilinear interpolation of maps (B, H, W, N, C) to (B, height, width, N, C)."""
    image = F.interpolate(to_nchw(x), (height, width), mode="bilinear", align_corners=False)
    return from_nchw(image, x.shape[3])


class Upsample(nn.Module):
    """Bilinear upsampling of (B, H, W, N, C) by `factor`, or to a size.

    Raises ValueError unless the factor is a whole number from 1 on.
    """

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        check_int("factor", factor)
        self.factor = factor

    def forward(self, x: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """(B, H, W, N, C) to (B, factor * H, factor * W, N, C), or to (B, *size, N, C)."""
        height, width = (self.factor * x.shape[1], self.factor * x.shape[2]) if size is None else size
        return upsample(x, height, width)

    def extra_repr(self) -> str:
        return f"{self.factor}"


class SteerableConvTranspose2d(nn.Module):
    """A transposed group convolution: learned upsampling by `stride`.

    It is the transpose of the `SteerableConv2d` with the same filters and stride s, as `nn.ConvTranspose2d` is that of
    `nn.Conv2d`. The kernel size is 2 s (2 s + 1 for odd s), the padding (k - s) / 2. Raises ValueError as `SteerableConv2d` does.
    """

    def __init__(
        self,
        in_fields: int,
        out_fields: int,
        group: str | Group,
        stride: int = 2,
        basis: str = "band",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_int("stride", stride, 2)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        kernel_size = kernel_for_stride(stride)
        self.conv = SteerableConv2d(
            in_fields, out_fields, kernel_size, group, stride=stride, basis=basis, bias=bias, **factory
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Keeps the variance: an output pixel uses one in s^2 of the k^2 filter values."""
        self.conv.reset_parameters(gain=float(self.conv.stride))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, s * H, s * W, N, out_fields)."""
        filter, bias = self.conv.assemble(False)
        stride, padding = self.conv.stride, self.conv.padding
        image = F.conv_transpose2d(to_nchw(x), filter.transpose(0, 1), bias, stride=stride, padding=padding)
        return from_nchw(image, self.conv.order)


class Fusion(nn.Module):
    """Upsamples a coarse map to the size of a finer one, and adds 1 x 1 group convolutions of both.

    This equals a 1 x 1 convolution of their concatenation. The coarse map is convolved before the upsampling, where it is
    smaller. Scalar fields (N = 1) of the finer map count as regular fields that are constant along the group.
    """

    def __init__(
        self,
        fields: int,
        skip_fields: int,
        out_fields: int,
        group: str | Group,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        group = make_group(group)
        self.order = group.order
        self.coarse = SteerableConv2d(fields, out_fields, 1, group, bias=False, **factory)
        self.norm = FieldNorm(skip_fields, group.order, **factory)
        self.skip = SteerableConv2d(skip_fields, out_fields, 1, group, **factory)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """A map x (B, h, w, N, C) and a finer one, `skip` (B, H, W, N, C'), to (B, H, W, N, out_fields)."""
        skip = skip.expand(-1, -1, -1, self.order, -1)
        return upsample(self.coarse(x), skip.shape[1], skip.shape[2]) + self.skip(self.norm(skip))
