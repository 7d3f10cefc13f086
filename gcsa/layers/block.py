"""The transformer block, the residual block and the convolutional stem that the models are made of."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import DropPath, LayerScale
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import Group, group as make_group
from gcsa.layers.attention.self_attention import GroupConvSelfAttention
from gcsa.layers.basis import ComputedBuffers
from gcsa.layers.checks import check_positive, check_rate, check_sequence, check_whole
from gcsa.layers.norm import FieldNorm, make_norm
from gcsa.layers.positions import LearnedPositions
from gcsa.layers.regularize import FieldDropout
from gcsa.layers.steerable import SteerableConv2d, group_convolution, kernel_for_stride


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
    """Hidden `name` of an MLP on `width` of them. Raises ValueError where that leaves none."""
    check_positive(mlp_ratio=mlp_ratio)
    hidden = int(width * mlp_ratio)
    if hidden < 1:
        raise UserError(
            f"mlp_ratio={mlp_ratio} of {width} {name} leaves none: use {math.ceil(100 / width) / 100} or more"
        )
    return hidden


class Block(nn.Module):
    """x + G-CSA(norm(x)), then x + MLP(norm(x)), on (B, H, W, N, C).

    `layer_scale` is the initial value of a learned factor for each field on both branches (0: no factor);
    `drop_path` drops a branch of a sample, `proj_drop` whole fields. The other arguments go to
    `GroupConvSelfAttention`.

    Raises ValueError for a negative layer_scale, an mlp_ratio that leaves no hidden field, rates outside [0, 1), and as
    `GroupConvSelfAttention` does.
    """

    def __init__(
        self,
        fields: int,
        heads: int,
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
        check_whole(fields=fields)
        hidden_fields = mlp_width(fields, mlp_ratio)
        check_rate(drop_path=drop_path)
        check_positive(True, layer_scale=layer_scale or 0)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm1 = FieldNorm(fields, group.order, **factory)
        self.attn = GroupConvSelfAttention(fields, heads, group, proj_drop=proj_drop, **attention, **factory)
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

    Pre-activation, as in He et al. 2016, Identity Mappings in Deep Residual Networks (arXiv:1603.05027). `drop_path` drops
    the branch of a sample, `proj_drop` whole fields. The norm is the `FieldNorm` of the transformers, which unlike batch norm
    is the same function in training and evaluation.
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


class LowPass(ComputedBuffers):
    """The binomial filter 1 2 1 along both axes of (B, H, W, N, C), in front of a stride; exact under turns and mirrors.

    Without it the stride aliases, so that a shift by one pixel or a turn by 45 degrees changes what the coarse grid
    sees (Zhang 2019, Making convolutional networks shift-invariant again).
    """

    taps: Tensor

    def __init__(
        self, padding_mode: str = "zeros", device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.circular = padding_mode == "circular"
        self.register_buffer("taps", torch.empty(3, 3, device=device, dtype=dtype), persistent=False)
        self.init_non_persistent_buffers()

    def init_non_persistent_buffers(self) -> None:
        """Fills the filter."""
        with torch.no_grad():
            self.taps.copy_(torch.tensor([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        image = x.flatten(3).permute(0, 3, 1, 2)
        if self.circular:
            image = F.pad(image, (1, 1, 1, 1), mode="circular")
        channels = image.shape[1]
        taps = self.taps.to(x.dtype).expand(channels, 1, 3, 3)
        image = F.conv2d(image, taps, padding=0 if self.circular else 1, groups=channels)
        return image.permute(0, 2, 3, 1).unflatten(3, x.shape[3:])


class GroupPooling(nn.Module):
    """A 1 x 1 group convolution, a GELU, and the maximum over the group (Cohen & Welling 2016, arXiv:1602.07576, section
    6.3): (B, H, W, N, C) to scalar fields (B, H, W, 1, out_fields).

    A scalar field turns with the image, and its values stay what they are. So behind this layer a linear map of the
    channels and attention between positions are equivariant whatever their weights, and a feature is one number a
    position instead of N. What is lost is how the directions at one place lie to those at another.
    """

    def __init__(
        self,
        fields: int,
        out_fields: int,
        group: str | Group,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.expand = SteerableConv2d(fields, out_fields, 1, group, **factory)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, H, W, 1, out_fields)."""
        return F.gelu(self.expand(x)).amax(3, keepdim=True)


class Stem(nn.Module):
    """Image to feature map: a lifting convolution, then group convolutions, one for each further stride.

    A stride above 1 has the kernel `kernel_for_stride`, which is exact for every size that it divides; stride 1 has
    a 5 x 5 kernel.

    Args:
        strides: of the convolutions.
        widths: fields behind each convolution but the last, which has `fields`; None is half of `fields` for all, since
            they run on the larger maps.
        padding_mode: "zeros" or "circular".
        basis: of the filters, as in `SteerableConv2d`.
        norm: behind each convolution: "layer" (`FieldNorm`) or "batch" (`FieldBatchNorm`).
        low_pass: a `LowPass` in front of every stride but the image's own.
        separable: of the convolutions between the first and the last, as in `group_convolution`. They run on large maps,
            where this makes many fields cheap.
        positions: `LearnedPositions` behind them, about the image's centre.
        depth: residual blocks (`ResidualBlock`) behind these.
        scalar_fields: end in a `GroupPooling` to that many scalar fields (0: in regular fields).

    Raises ValueError for strides and widths that are not whole numbers from 1 on or do not fit, `separable` with less than
    three strides, an unknown norm, and as `SteerableConv2d` does.
    """

    def __init__(
        self,
        in_chans: int,
        fields: int,
        group: str | Group,
        strides: Sequence[int],
        padding_mode: str = "zeros",
        basis: str = "band",
        norm: str = "layer",
        low_pass: bool = True,
        separable: bool = False,
        positions: bool = False,
        depth: int = 0,
        scalar_fields: int = 0,
        widths: Sequence[int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        group = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        check_whole(in_chans=in_chans)
        check_sequence(stem_strides=strides)
        check_whole(0, depth=depth)
        further = len(strides) - 1
        if widths is None:
            widths = [max(fields // 2, 1)] * further
        else:
            check_sequence(stem_fields=widths)
        if len(widths) != further:
            raise UserError(f"stem_fields needs {further} entries, one for each stride but the last, not {widths}")
        if separable and further < 2:
            raise UserError(f"stem_separable=true is for three stem_strides or more, not {list(strides)}")
        self.low_passes = nn.ModuleList()
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        before = in_chans
        for i, (stride, width) in enumerate(zip(strides, [*widths, fields], strict=True)):
            kernel_size = 5 if stride == 1 else kernel_for_stride(stride)
            conv: dict[str, Any] = dict(stride=stride, padding_mode=padding_mode, basis=basis, **factory)
            conv |= dict(lift=True) if i == 0 else dict(separable=separable and i < further)
            smooth = low_pass and i > 0 and stride > 1
            self.low_passes.append(LowPass(padding_mode, **factory) if smooth else nn.Identity())
            self.convs.append(group_convolution(before, width, kernel_size, group, **conv))
            self.norms.append(make_norm(norm, width, group.order, **factory))
            before = width
        self.positions = LearnedPositions(fields, group, **factory) if positions else nn.Identity()
        block: dict[str, Any] = dict(padding_mode=padding_mode, basis=basis, **factory)
        blocks = [ResidualBlock(fields, group, **block) for _ in range(depth)]
        self.blocks = nn.Sequential(*blocks) if blocks else nn.Identity()
        self.pool = GroupPooling(fields, scalar_fields, group, **factory) if scalar_fields else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, H / s, W / s, N, C), s the product of the strides; to (B, H / s, W / s, 1,
        scalar_fields) where these are asked for."""
        return self.maps(x)[-1]

    def maps(self, x: Tensor) -> list[Tensor]:
        """The map behind each convolution, the last being that of `forward`."""
        maps: list[Tensor] = []
        steps = zip(self.low_passes, self.convs, self.norms)  # noqa: B905 (TorchScript knows no strict)
        for i, (low_pass, conv, norm) in enumerate(steps):
            if i > 0:
                x = low_pass(F.gelu(x))
            x = norm(conv(x))
            maps.append(x)
        maps[-1] = self.pool(self.blocks(self.positions(x)))
        return maps


class Downsample(nn.Module):
    """Norm, low-pass and a 4 x 4 group convolution of stride 2: (B, H, W, N, C) to (B, H / 2, W / 2, N, out_fields)."""

    def __init__(
        self,
        fields: int,
        out_fields: int,
        group: str | Group,
        padding_mode: str = "zeros",
        basis: str = "band",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        group = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm = FieldNorm(fields, group.order, **factory)
        self.low_pass = LowPass(padding_mode, **factory)
        self.conv = SteerableConv2d(
            fields, out_fields, 4, group, stride=2, padding_mode=padding_mode, basis=basis, **factory
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, H / 2, W / 2, N, out_fields); ValueError for odd H or W."""
        return self.conv(self.low_pass(self.norm(x)))
