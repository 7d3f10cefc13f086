"""Group convolutions on feature maps (B, H, W, N, C): lifting, regular to regular, depthwise and 1 x 1.

Poster eq. 1 and 2. A filter is k[g, gh](x) = psi_h(g^-1 x) with psi_h = sum_j weight[..., h, j] b_j, so the filters
that produce output element g are the coefficients times table g (see `basis.py`), with the input's group axis in
the order g^-1 m. The convolution itself is `conv2d` on the free (B, N * C, H, W) channels-last view of the map; wide
1 x 1 convolutions are computed blockwise in the irrep basis (see `irreps.py`).
"""

import math
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.basis import ComputedBuffers, check_basis, fingerprint, fingerprint_of, planar_tables
from gcsa.layers.checks import check_whole
from gcsa.layers.irreps import fourier_matrix, grouped_filter, irrep_pairs

LARGEST_KERNEL = 32  # the tables of larger ones take minutes and hundreds of megabytes


def computes_in_irreps(order: int, width: int) -> bool:
    """Whether a 1 x 1 convolution of a group of this order, `width` channels or more in and out, is taken to the irrep
    basis: where it was the faster on the whole, by benchmarks/speed/irreps.py; ADR 13 names the exceptions."""
    return order % 2 == 0 and width >= (192 if order >= 8 else 384) and order > 2


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


def channels_last(image: Tensor) -> Tensor:
    """A copy of (B, C, H, W) in channels-last memory, from which `conv2d` makes the memory of a feature map.

    `Tensor.contiguous` would leave the strides of a single channel as they are.
    """
    return image.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format).permute(0, 3, 1, 2)


def kernel_for_stride(stride: int) -> int:
    """The kernel size 2 s (2 s + 1 for odd s), exact with padding (k - s) / 2 for every map that the stride divides."""
    return 2 * stride + stride % 2


class FieldConv2d(nn.Module):
    """`conv2d` between feature maps, with an assembled filter: what a convolution does once its filter is known.

    `groups` and `fourier`, the change of basis, belong to the filter.
    """

    fourier: Tensor | None

    def __init__(
        self, order: int, kernel_size: int, stride: int, padding: int, circular: bool, lift: bool, groups: int
    ) -> None:
        super().__init__()
        self.order, self.kernel_size, self.stride, self.padding = order, kernel_size, stride, padding
        self.circular, self.lift, self.groups = circular and padding > 0, lift, groups
        self.checks_size = stride > 1 and order > 1
        # A 1 x 1 convolution knows no dilation, but PyTorch takes one without, of a small batch on one thread, to a
        # library that is half as fast on some processors (ADR 13).
        self.dilation = 2 if kernel_size == 1 else 1

    def _apply(self, fn: Any, recurse: bool = True) -> "FieldConv2d":
        super()._apply(fn, recurse)
        on_cpu = next(self.parameters()).device.type == "cpu"
        self.dilation = 2 if self.kernel_size == 1 and on_cpu else 1
        return self

    def convolve(self, x: Tensor, filter: Tensor, bias: Tensor | None) -> Tensor:
        """Maps (B, H, W, N, C), or images (B, C, H, W) where `lift` is true, to (B, H', W', N, O)."""
        fourier = self.fourier
        if fourier is not None:
            fourier = fourier.to(x.dtype)  # PEFT widens the parameters of half-precision models and not the buffers
            x = torch.matmul(fourier, x)
        image = channels_last(x) if self.lift else x.flatten(3).permute(0, 3, 1, 2)
        if self.checks_size:
            check_exact(image.shape[2], image.shape[3], self.kernel_size, self.stride, self.padding)
        padding = self.padding
        if self.circular:
            image = F.pad(image, (padding, padding, padding, padding), mode="circular")
            padding = 0
        out = F.conv2d(
            image, filter, bias, stride=self.stride, padding=padding, dilation=self.dilation, groups=self.groups
        )
        y = out.permute(0, 2, 3, 1).unflatten(3, (self.order, -1))
        if fourier is not None:
            y = torch.matmul(fourier.t(), y)
        return y


class SteerableConv2d(ComputedBuffers, FieldConv2d):
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
        basis: of the filters: "band", the smooth ones, or "full", every filter, for groups of quarter turns and mirrors
            only (see `basis.py`).

    Raises:
        ValueError: "full" for a group with other turns, unknown basis, even kernel with stride 1, kernel above 32 pixels,
            unknown padding mode, depthwise with unlike or lifted fields, sizes below 1; in forward, a map size for which
            the stride breaks exactness.

    Attributes:
        weight: coefficients (out_fields, in_fields, |H|, J); (out_fields, in_chans, 1, J) where `lift` is true and
            (out_fields, 1, 1, J) where `depthwise` is.
        in_features, out_features: channels as NCHW users count them.
    """

    tables: Tensor
    index: Tensor
    irreps: Tensor | None

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
        basis: str = "band",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_arguments(in_fields, out_fields, kernel_size, stride, padding_mode, depthwise, lift)
        h = make_group(group)
        check_basis(basis, h)
        if padding is None:
            padding = max(kernel_size - stride + 1, 0) // 2
        in_features, out_features = in_fields * (1 if lift else h.order), out_fields * h.order
        pointwise = (kernel_size, stride, padding) == (1, 1, 0) and not (lift or depthwise)
        in_irreps = pointwise and computes_in_irreps(h.order, min(in_features, out_features))
        groups = out_features if depthwise else h.order // 2 if in_irreps else 1
        super().__init__(h.order, kernel_size, stride, padding, padding_mode == "circular", lift, groups)
        self.group, self.basis = h, basis
        self.depthwise = depthwise
        self.in_fields, self.out_fields = in_fields, out_fields
        self.in_features, self.out_features = in_features, out_features

        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        functions = planar_tables(h, kernel_size, self.basis).shape[1]
        shape = (out_fields, 1 if depthwise else in_fields, 1 if lift or depthwise else h.order, functions)
        self.weight = nn.Parameter(torch.empty(shape, **factory))
        self.bias = nn.Parameter(torch.empty(out_fields, **factory)) if bias else None
        tables = torch.empty(h.order, functions, kernel_size, kernel_size, **factory)
        self.register_buffer("tables", tables, persistent=False)
        for name, size in (("fourier", (h.order, h.order)), ("irreps", (h.order // 2, 2, 2, h.order))):
            self.register_buffer(name, torch.empty(size, **factory) if in_irreps else None, persistent=False)
        self.init_non_persistent_buffers()
        self.reset_parameters()

    def init_non_persistent_buffers(self) -> None:
        """Fills the tables, and the change of basis where there is one."""
        with torch.no_grad():
            self.tables.copy_(torch.from_numpy(planar_tables(self.group, self.kernel_size, self.basis)))
            if self.fourier is not None and self.irreps is not None:
                self.fourier.copy_(torch.from_numpy(fourier_matrix(self.group)))
                self.irreps.copy_(torch.from_numpy(irrep_pairs(self.group)))
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

    def assemble(self) -> tuple[Tensor, Tensor | None]:
        """Filter and bias as `conv2d` takes them: of `filter`, or in the irrep basis where the layer computes in it."""
        irreps = self.irreps
        if irreps is None:
            return self.filter(), None if self.bias is None else self.bias.repeat(self.order)
        filter = grouped_filter(self.weight.flatten(2), irreps.to(self.weight.dtype))
        if self.bias is None:
            return filter, None
        # A constant has the trivial coefficient alone, the first.
        return filter, F.pad(math.sqrt(self.order) * self.bias, (0, (self.order - 1) * self.out_fields))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, H, W, N, C), or images (B, C, H, W) where `lift` is true, to (B, H', W', N, O) of the same dtype."""
        filter, bias = self.assemble()
        return self.convolve(x, filter, bias)

    def get_extra_state(self) -> Tensor:
        """The fingerprint of the basis as the tables hold it, which every state dict carries."""
        return torch.tensor(fingerprint_of(self.tables, self.group, self.kernel_size, self.basis))

    def set_extra_state(self, state: Tensor) -> None:
        """Raises ValueError for the fingerprint of another basis."""
        if not isinstance(state, Tensor):  # torch.distributed's stand-in, as it loads sharded weights one by one
            return
        expected = fingerprint(self.group, self.kernel_size, self.basis)
        if int(state) != expected:
            raise ValueError(
                f"the weights were trained in another kernel basis (fingerprint {int(state):012x}) than this "
                f"installation builds for {self.group}, kernel {self.kernel_size} and basis={self.basis} ({expected:012x})"
            )

    def extra_repr(self) -> str:
        kind = "lift, " if self.lift else "depthwise, " if self.depthwise else ""
        return (
            f"{self.in_fields}, {self.out_fields}, kernel_size={self.kernel_size}, group={self.group}, {kind}"
            f"stride={self.stride}, padding={self.padding}, basis={self.basis}"
        )


def _check_arguments(
    in_fields: int, out_fields: int, kernel_size: int, stride: int, padding_mode: str, depthwise: bool, lift: bool
) -> None:
    check_whole(in_fields=in_fields, out_fields=out_fields, kernel_size=kernel_size, stride=stride)
    if kernel_size > LARGEST_KERNEL:
        raise ValueError(f"kernel_size must be {LARGEST_KERNEL} or less, not {kernel_size}")
    if kernel_size % 2 == 0 and stride == 1:
        raise ValueError(
            f"an even kernel_size ({kernel_size}) needs a stride above 1: it has no centre; use {kernel_size + 1}"
        )
    if padding_mode not in ("zeros", "circular"):
        raise ValueError(f"unknown padding_mode {padding_mode!r}: choose zeros or circular")
    if depthwise and (lift or in_fields != out_fields):
        raise ValueError(f"depthwise needs as many fields out as in, and no lifting, not {in_fields} to {out_fields}")


def group_convolution(
    in_fields: int, out_fields: int, kernel_size: int, group: Group, separable: bool = False, **conv: Any
) -> nn.Module:
    """A k x k `SteerableConv2d`, or with `separable` a depthwise k x k one and then 1 x 1, as in CvT (Wu et al. 2021,
    arXiv:2103.15808); `conv` are further arguments of the k x k one."""
    if not separable or kernel_size == 1:
        return SteerableConv2d(in_fields, out_fields, kernel_size, group, **conv)
    factory = {key: conv[key] for key in ("device", "dtype") if key in conv}
    return nn.Sequential(
        SteerableConv2d(in_fields, in_fields, kernel_size, group, depthwise=True, bias=False, **conv),
        SteerableConv2d(in_fields, out_fields, 1, group, **factory),
    )
