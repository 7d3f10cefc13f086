"""Group convolutions on feature maps (B, H, W, N, C): lifting, regular to regular, depthwise and 1 x 1.

Poster eq. 1 and 2. A filter is k[g, gh](x) = psi_h(g^-1 x) with psi_h = sum_j weight[..., h, j] b_j, so the filters
that produce output element g are the coefficients times table g (see `basis.py`), with the input's group axis in
the order g^-1 m. The convolution itself is `conv2d` on the free (B, N * C, H, W) channels-last view of the map.
"""

import math
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.basis import fingerprint, planar_tables


def expand_filter(weight: Tensor, tables: Tensor, index: Tensor) -> Tensor:
    """Filters (N, O, M, C, k, k) from coefficients (O, C, M, J), tables (N, J, k, k) and input order (N, M).

    M is N between regular fields, and 1 from an image or where depthwise.
    """
    ordered = weight[:, :, index]
    if tables.shape[-1] == 1:  # the one planar function of a 1 x 1 kernel is the constant 1
        return ordered.permute(2, 0, 3, 1, 4).unsqueeze(-1)
    return torch.einsum("ocgmj,gjxy->gomcxy", ordered, tables)


@torch.fx.wrap
@register_notrace_function
def check_exact(height: int, width: int, kernel_size: int, stride: int, padding: int) -> None:
    """Raises ValueError unless quarter turns commute with the stride: (size + 2 p - k) mod s = 0 on both axes."""
    for size in (height, width):
        rest = (size + 2 * padding - kernel_size) % stride
        if rest != 0:
            below = size - rest
            near = f"{below} or {below + stride}" if below >= max(kernel_size - 2 * padding, 1) else f"{below + stride}"
            raise ValueError(
                f"a map of {height} x {width} breaks exact equivariance in a convolution with kernel {kernel_size}, "
                f"stride {stride} and padding {padding}: use a size of {near}"
            )


def kernel_for_stride(stride: int) -> int:
    """The kernel size 2 s (2 s + 1 for odd s), exact with padding (k - s) / 2 for every map that the stride divides."""
    return 2 * stride + stride % 2


class SteerableConv2d(nn.Module):
    """Convolution equivariant to the group's rotations and mirrors, exactly so for quarter turns.

    Args:
        in_fields: regular fields in, or image channels where `lift` is true.
        out_fields: regular fields out.
        kernel_size: side of the kernel in pixels.
        group: such as "c8" or "d4".
        lift: take images (B, C, H, W) to feature maps, instead of feature maps to feature maps.
        stride, padding: as in `nn.Conv2d`; padding defaults to the one that keeps size / stride positions.
        padding_mode: "zeros", or "circular" for exact cyclic shifts.
        depthwise: each channel is convolved with itself alone, k[g, gh] = 0 unless h is the identity (in_fields =
            out_fields); a 1 x 1 convolution behind it mixes fields and group elements.
        bias: one number for each field.

    Raises:
        ValueError: even kernel with stride 1, unknown padding mode, depthwise with unlike or lifted fields,
            sizes below 1; in forward, a map size for which the stride breaks exactness.

    Attributes:
        weight: coefficients (out_fields, in_fields, |H|, J); (out_fields, in_chans, 1, J) where `lift` is true and
            (out_fields, 1, 1, J) where `depthwise` is.
        in_features, out_features: channels as NCHW users count them.
    """

    tables: Tensor
    index: Tensor

    def __init__(
        self,
        in_fields: int,
        out_fields: int,
        kernel_size: int,
        group: str | Group,
        lift: bool = False,
        stride: int = 1,
        padding: int | None = None,
        padding_mode: str = "zeros",
        depthwise: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.group = make_group(group)
        _check_arguments(in_fields, out_fields, kernel_size, stride, padding_mode, depthwise, lift)
        order = self.group.order
        self.order = order
        self.lift = lift
        self.depthwise = depthwise
        self.in_fields, self.out_fields = in_fields, out_fields
        self.in_features, self.out_features = in_fields * (1 if lift else order), out_fields * order
        self.kernel_size, self.stride = kernel_size, stride
        self.padding = max(kernel_size - stride + 1, 0) // 2 if padding is None else padding
        self.circular = padding_mode == "circular" and self.padding > 0
        self.checks_size = stride > 1 and order > 1

        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        functions = planar_tables(self.group, kernel_size).shape[1]
        shape = (out_fields, 1 if depthwise else in_fields, 1 if lift or depthwise else order, functions)
        self.weight = nn.Parameter(torch.empty(shape, **factory))
        self.bias = nn.Parameter(torch.empty(out_fields, **factory)) if bias else None
        self.register_buffer(
            "tables", torch.empty((order, functions, kernel_size, kernel_size), **factory), persistent=False
        )
        self.reset_buffers()
        self.reset_parameters()

    def reset_buffers(self) -> None:
        """Fills the tables again, as after construction on the meta device."""
        with torch.no_grad():
            self.tables.copy_(torch.from_numpy(planar_tables(self.group, self.kernel_size)))
        self.index = self._input_order()

    def _input_order(self) -> Tensor:
        """Row g holds g^-1 m for each m, or 0 where the input has no group axis to mix.

        A plain attribute, because weight averaging (EMA) averages buffers, and that truncates integers.
        """
        order = self.group.cayley[self.group.inverse][:, : self.weight.shape[2]]
        return torch.from_numpy(order if self.weight.shape[2] > 1 else 0 * order).to(self.tables.device)

    def _apply(self, fn: Any, recurse: bool = True) -> "SteerableConv2d":
        super()._apply(fn, recurse)
        if self.index.device != self.tables.device:
            self.index = self._input_order()
        return self

    def reset_parameters(self, gain: float = 1.0) -> None:
        """Keeps the variance: the tables have unit energy, so each coefficient gets gain^2 over the fan-in."""
        fan_in = math.prod(self.weight.shape[1:])
        nn.init.trunc_normal_(self.weight, std=gain / math.sqrt(fan_in))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def filter(self) -> Tensor:
        """The dense filter as `conv2d` takes it: (N * O, M * C, k, k); M = C = 1 where depthwise."""
        blocks = expand_filter(self.weight, self.tables, self.index)
        n, o, m, c, k, _ = blocks.shape
        return blocks.reshape(n * o, m * c, k, k)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, H, W, N, C), or images (B, C, H, W) where `lift` is true, to (B, H', W', N, O) of the same dtype."""
        bias = None if self.bias is None else self.bias.repeat(self.order)
        image = x if self.lift else x.flatten(3).permute(0, 3, 1, 2)
        if self.checks_size:
            check_exact(image.shape[2], image.shape[3], self.kernel_size, self.stride, self.padding)
        padding = self.padding
        if self.circular:
            image = F.pad(image, (padding, padding, padding, padding), mode="circular")
            padding = 0
        groups = self.out_features if self.depthwise else 1
        out = F.conv2d(image, self.filter(), bias, stride=self.stride, padding=padding, groups=groups)
        return out.permute(0, 2, 3, 1).unflatten(3, (self.order, self.out_fields))

    def get_extra_state(self) -> Tensor:
        """The fingerprint of the basis, which every state dict carries."""
        return torch.tensor(fingerprint(self.group, self.kernel_size))

    def set_extra_state(self, state: Tensor) -> None:
        """Raises ValueError for the fingerprint of another basis."""
        if not isinstance(state, Tensor):  # torch.distributed's stand-in, as it loads sharded weights one by one
            return
        expected = fingerprint(self.group, self.kernel_size)
        if int(state) != expected:
            raise ValueError(
                f"the weights were trained in another kernel basis (fingerprint {int(state):012x}) than this "
                f"installation builds for {self.group} and kernel {self.kernel_size} ({expected:012x})"
            )

    def extra_repr(self) -> str:
        kind = "lift, " if self.lift else "depthwise, " if self.depthwise else ""
        return (
            f"{self.in_fields}, {self.out_fields}, kernel_size={self.kernel_size}, group={self.group}, {kind}"
            f"stride={self.stride}, padding={self.padding}"
        )


def _check_arguments(
    in_fields: int, out_fields: int, kernel_size: int, stride: int, padding_mode: str, depthwise: bool, lift: bool
) -> None:
    for name, value in (
        ("in_fields", in_fields),
        ("out_fields", out_fields),
        ("kernel_size", kernel_size),
        ("stride", stride),
    ):
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, not {value}")
    if kernel_size % 2 == 0 and stride == 1:
        raise ValueError(
            f"an even kernel_size ({kernel_size}) needs a stride above 1: it has no centre; use {kernel_size + 1}"
        )
    if padding_mode not in ("zeros", "circular"):
        raise ValueError(f"unknown padding_mode {padding_mode!r}: choose zeros or circular")
    if depthwise and (lift or in_fields != out_fields):
        raise ValueError(f"depthwise needs as many fields out as in, and no lifting, not {in_fields} to {out_fields}")
