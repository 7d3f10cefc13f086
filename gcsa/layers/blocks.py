"""The transformer block and the residual block of the models."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import DropPath, LayerScale
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float, check_int, check_rate
from gcsa.groups import Group, group as make_group
from gcsa.layers.attention import GroupConvSelfAttention
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.norm import FieldDropout, FieldNorm


class FieldMlp(nn.Module):
    """Two 1 x 1 group convolutions with a GELU between: (B, H, W, N, C) to the same shape."""

    def __init__(
        self,
        fields: int,
        hidden_fields: int,
        group: str | Group,
        drop: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.fc1 = SteerableConv2d(fields, hidden_fields, 1, group, device=device, dtype=dtype)
        self.fc2 = SteerableConv2d(hidden_fields, fields, 1, group, device=device, dtype=dtype)
        self.drop = FieldDropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        return self.drop(self.fc2(F.gelu(self.fc1(x))))


def mlp_width(width: int, mlp_ratio: float, name: str = "fields") -> int:
    """The number of hidden `name` of an MLP on `width` of them. Raises ValueError if it is 0."""
    check_float("mlp_ratio", mlp_ratio, above=0)
    hidden = int(width * mlp_ratio)
    if hidden < 1:
        raise UserError(
            f"mlp_ratio={mlp_ratio} of {width} {name} leaves none: use {math.ceil(100 / width) / 100} or more",
            "mlp_ratio",
        )
    return hidden


class Block(nn.Module):
    """x + G-CSA(norm(x)), then x + MLP(norm(x)), on (B, H, W, N, C).

    Args:
        fields, num_heads, group, attention: as in `GroupConvSelfAttention`.
        mlp_ratio: hidden fields of the MLP, as a multiple of the fields.
        drop_path: probability of dropping a branch of a sample.
        proj_drop: probability of dropping a whole field of a branch.
        layer_scale: initial value of a learned factor for each field, on both branches; 0 for no factor.

    Raises:
        ValueError: a negative layer_scale, an mlp_ratio that leaves no hidden field, a rate outside [0, 1), and as in
            `GroupConvSelfAttention`.
    """

    def __init__(
        self,
        fields: int,
        num_heads: int,
        group: str | Group,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        proj_drop: float = 0.0,
        layer_scale: float | None = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        group = make_group(group)
        check_int("fields", fields)
        hidden_fields = mlp_width(fields, mlp_ratio)
        check_rate("drop_path", drop_path)
        check_float("layer_scale", layer_scale or 0, 0)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm1 = FieldNorm(fields, group.order, **factory)
        self.attn = GroupConvSelfAttention(fields, num_heads, group, proj_drop=proj_drop, **attention, **factory)
        self.norm2 = FieldNorm(fields, group.order, **factory)
        self.mlp = FieldMlp(fields, hidden_fields, group, proj_drop, **factory)
        self.scale1 = LayerScale(fields, layer_scale, **factory) if layer_scale else nn.Identity()
        self.scale2 = LayerScale(fields, layer_scale, **factory) if layer_scale else nn.Identity()
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        x = x + self.drop_path(self.scale1(self.attn(self.norm1(x))))
        return x + self.drop_path(self.scale2(self.mlp(self.norm2(x))))


class ResidualBlock(nn.Module):
    """x + conv(gelu(norm(conv(gelu(norm(x)))))), both k x k group convolutions, on (B, H, W, N, C).

    Pre-activation, as in He et al. 2016, Identity Mappings in Deep Residual Networks (arXiv:1603.05027). `drop_path` is the
    probability of dropping the branch of a sample, `proj_drop` that of a whole field. The norm is `FieldNorm`, as in the
    transformers. Unlike batch norm, it is the same function in training and evaluation.
    """

    def __init__(
        self,
        fields: int,
        group: str | Group,
        kernel_size: int = 3,
        drop_path: float = 0.0,
        proj_drop: float = 0.0,
        padding_mode: str = "zeros",
        basis: str = "band",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        group = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm1 = FieldNorm(fields, group.order, **factory)
        conv = dict(padding_mode=padding_mode, basis=basis, **factory)
        self.conv1 = SteerableConv2d(fields, fields, kernel_size, group, **conv)
        self.norm2 = FieldNorm(fields, group.order, **factory)
        self.conv2 = SteerableConv2d(fields, fields, kernel_size, group, **conv)
        self.drop = FieldDropout(proj_drop)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        branch = self.conv1(F.gelu(self.norm1(x)))
        branch = self.conv2(F.gelu(self.norm2(branch)))
        return x + self.drop_path(self.drop(branch))
