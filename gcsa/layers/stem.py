"""Layers from images to feature maps, and from feature maps to coarser ones."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int, check_ints
from gcsa.groups import Group, group as make_group
from gcsa.layers.blocks import ResidualBlock
from gcsa.layers.buffers import ComputedBuffers
from gcsa.layers.conv import SteerableConv2d, group_convolution, kernel_for_stride
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.norm import FieldNorm, make_norm
from gcsa.layers.pooling import GroupPooling
from gcsa.layers.positions import LearnedPositions


class LowPass(ComputedBuffers):
    """The binomial filter 1 2 1 along both axes of (B, H, W, N, C), in front of a stride.

    It commutes exactly with rotations by 90 degrees and reflections. Without it the stride aliases, and a shift by one pixel or a
    rotation by 45 degrees changes the coarse map (Zhang 2019, Making convolutional networks shift-invariant again,
    arXiv:1904.11486).
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
        image = to_nchw(x)
        if self.circular:
            image = F.pad(image, (1, 1, 1, 1), mode="circular")
        channels = image.shape[1]
        taps = self.taps.to(x.dtype).expand(channels, 1, 3, 3)
        image = F.conv2d(image, taps, padding=0 if self.circular else 1, groups=channels)
        return from_nchw(image, x.shape[3])


class Stem(nn.Module):
    """Image to feature map: a lifting convolution, then group convolutions, one for each further stride.

    A stride above 1 has a kernel of the size `kernel_for_stride`, which is exact for every image size that the stride divides. A
    stride of 1 has a 5 x 5 kernel.

    Args:
        strides: of the convolutions.
        widths: fields behind each convolution but the last, which has `fields`; None for half of `fields`, since these run on
            the larger maps.
        padding_mode: "zeros" or "circular".
        basis: of the filters, as in `SteerableConv2d`.
        norm: behind each convolution: "layer" (`FieldNorm`) or "batch" (`FieldBatchNorm`).
        low_pass: a `LowPass` in front of every stride but the first, which reads the image.
        separable: of the convolutions between the first and the last, as in `group_convolution`. It reduces their cost on large
            maps with many fields.
        positions: `LearnedPositions` about the image's centre, behind the convolutions.
        depth: number of `ResidualBlock`s behind these.
        scalar_fields: scalar fields of a `GroupPooling` at the end; 0 for none, which leaves regular fields.

    Raises:
        ValueError: strides or widths that are not whole numbers from 1 on, another number of widths, `separable` with fewer
            than three strides, an unknown norm, and as in `SteerableConv2d`.

    Attributes:
        levels: fields and stride in pixels of each of `maps`.
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
        check_int("in_chans", in_chans)
        check_ints("stem_strides", strides)
        check_int("depth", depth, 0)
        further = len(strides) - 1
        if widths is None:
            widths = [max(fields // 2, 1)] * further
        else:
            check_ints("stem_fields", widths)
        if len(widths) != further:
            raise UserError(
                f"stem_fields needs {further} entries, one for each stride but the last, not {widths}", "stem_fields"
            )
        if separable and further < 2:
            raise UserError(
                f"stem_separable=true is for three stem_strides or more, not {list(strides)}", "stem_separable"
            )
        self.low_passes = nn.ModuleList()
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        self.levels: list[tuple[int, int]] = []
        before, total = in_chans, 1
        for i, (stride, width) in enumerate(zip(strides, [*widths, fields], strict=True)):
            kernel_size = 5 if stride == 1 else kernel_for_stride(stride)
            conv: dict[str, Any] = dict(stride=stride, padding_mode=padding_mode, basis=basis, **factory)
            conv |= dict(lift=True) if i == 0 else dict(separable=separable and i < further)
            smooth = low_pass and i > 0 and stride > 1
            self.low_passes.append(LowPass(padding_mode, **factory) if smooth else nn.Identity())
            self.convs.append(group_convolution(before, width, kernel_size, group, **conv))
            self.norms.append(make_norm(norm, width, group.order, **factory))
            before, total = width, total * stride
            self.levels.append((width, total))
        self.positions = LearnedPositions(fields, group, **factory) if positions else nn.Identity()
        block: dict[str, Any] = dict(padding_mode=padding_mode, basis=basis, **factory)
        blocks = [ResidualBlock(fields, group, **block) for _ in range(depth)]
        self.blocks = nn.Sequential(*blocks) if blocks else nn.Identity()
        self.pool = GroupPooling(fields, scalar_fields, group, **factory) if scalar_fields else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, H / s, W / s, N, fields), or (B, H / s, W / s, 1, scalar_fields) if these are not 0; s is
        the product of the strides."""
        return self.pool(self.maps(x)[-1])

    def maps(self, x: Tensor) -> list[Tensor]:
        """The map behind each convolution; the last one is behind the blocks, and `pool` makes the result of `forward` of it."""
        maps: list[Tensor] = []
        steps = zip(self.low_passes, self.convs, self.norms)  # noqa: B905 (TorchScript knows no strict)
        for i, (low_pass, conv, norm) in enumerate(steps):
            if i > 0:
                x = low_pass(F.gelu(x))
            x = norm(conv(x))
            maps.append(x)
        maps[-1] = self.blocks(self.positions(x))
        return maps

    def prune(self, count: int) -> None:
        """Removes what is behind the first `count` of `maps`, the last of which `forward` then returns."""
        if count < len(self.levels):
            self.positions, self.blocks = nn.Identity(), nn.Identity()
        self.pool = nn.Identity()
        self.levels = self.levels[:count]
        self.low_passes, self.convs, self.norms = self.low_passes[:count], self.convs[:count], self.norms[:count]


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
        """(B, H, W, N, C) to (B, H / 2, W / 2, N, out_fields). Raises ValueError for odd H or W."""
        return self.conv(self.low_pass(self.norm(x)))
