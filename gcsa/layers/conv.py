"""Group convolutions on feature maps (B, H, W, N, C): lifting, regular to regular, depthwise and 1 x 1.

Poster eq. 1 and 2. A filter is k[g, gh](x) = psi_h(g^-1 x) with psi_h = sum_j weight[..., h, j] b_j, so the filters
that produce output element g are the coefficients times table g (see `kernels.py`), with the input's group axis in
the order g^-1 m. The convolution itself is `conv2d` on the free (B, N * C, H, W) channels-last view of the map; wide
ones are computed blockwise in the irrep basis (see `irreps.py`).
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int
from gcsa.groups import Group, group as make_group
from gcsa.layers.buffers import ComputedBuffers
from gcsa.layers.conv_plans import computes_in_irreps, should_expand
from gcsa.layers.irreps import expanded_weight, fourier_matrix, grouped_filter, irrep_pairs
from gcsa.layers.kernels import check_basis, fingerprint, fingerprint_of, planar_tables, steering_matrices

LARGEST_KERNEL = 32  # the planar tables of larger ones take minutes and hundreds of megabytes


def check_convolution(
    in_fields: int,
    out_fields: int,
    kernel_size: int,
    stride: int,
    padding_mode: str,
    depthwise: bool,
    lift: bool,
    sharers: int,
) -> None:
    """Raises ValueError for arguments of a `SteerableConv2d` that do not go together."""
    check_int("in_fields", in_fields)
    check_int("out_fields", out_fields)
    check_int("kernel_size", kernel_size)
    check_int("stride", stride)
    check_int("sharers", sharers)
    if kernel_size > LARGEST_KERNEL:
        raise UserError(f"kernel_size must be {LARGEST_KERNEL} or less, not {kernel_size}")
    if kernel_size % 2 == 0 and stride == 1:
        raise UserError(
            f"an even kernel_size ({kernel_size}) needs a stride above 1: it has no centre; use {kernel_size + 1}"
        )
    if padding_mode not in ("zeros", "circular"):
        raise UserError(f"unknown padding_mode {padding_mode!r}: choose zeros or circular")
    if depthwise and (lift or in_fields != out_fields):
        raise UserError(f"depthwise needs as many fields out as in, and no lifting, not {in_fields} to {out_fields}")


@torch.fx.wrap
@register_notrace_function
def check_exact(height: int, width: int, kernel_size: int, stride: int, padding: int) -> None:
    """Raises ValueError unless quarter turns commute with the stride: (size + 2 p - k) mod s = 0 on both axes."""
    for size in (height, width):
        rest = (size + 2 * padding - kernel_size) % stride
        if rest != 0:
            below = size - rest
            near = f"{below} or {below + stride}" if below >= max(kernel_size - 2 * padding, 1) else f"{below + stride}"
            raise UserError(
                f"a map of {height} x {width} breaks exact equivariance in a convolution with kernel {kernel_size}, "
                f"stride {stride} and padding {padding}: use a size of {near}"
            )


@torch.fx.wrap
@register_notrace_function
def check_order(given: int, order: int) -> None:
    """Raises ValueError for a map with another group axis than a convolution's: as many channels do not make it one."""
    if given != order:
        raise UserError(
            f"a convolution of a group of order {order} takes maps (B, H, W, {order}, C), not (B, H, W, {given}, C)"
        )


def expand_filter(weight: Tensor, tables: Tensor, index: Tensor) -> Tensor:
    """Filters (N, O, M, C, k, k) from coefficients (O, C, M, J), tables (N, J, k, k) and input order (N, M).

    M is N between regular fields, and 1 from an image or where depthwise.
    """
    ordered = weight[:, :, index]
    if tables.shape[-1] == 1:  # the one planar function of a 1 x 1 kernel is the constant 1
        return ordered.permute(2, 0, 3, 1, 4).unsqueeze(-1)
    # PEFT, FSDP's mixed precision and a state dict that is assigned cast parameters alone.
    return torch.einsum("ocgmj,gjxy->gomcxy", ordered, tables.to(ordered.dtype))


@torch.fx.wrap
@register_notrace_function
def convolve_strided(
    image: Tensor, filter: Tensor, bias: Tensor | None, stride: int, padding: int, dilation: int, groups: int
) -> Tensor:
    """`conv2d`; depthwise in float32 where autocast on a CPU would take it to bfloat16, whose backward pass is ten times as
    slow or more (docs/adr/0029)."""
    if not torch.jit.is_scripting():  # noqa: SIM102 (TorchScript knows no autocast, and skips an if of this condition alone)
        if groups > 1 and torch.is_autocast_enabled("cpu"):
            wide = torch.promote_types(image.dtype, torch.float32)
            with torch.autocast("cpu", enabled=False):
                bias = None if bias is None else bias.to(wide)
                return F.conv2d(image.to(wide), filter.to(wide), bias, stride, padding, dilation, groups)
    return F.conv2d(image, filter, bias, stride, padding, dilation, groups)


def channels_last(image: Tensor) -> Tensor:
    """A copy of (B, C, H, W) in channels-last memory, from which `conv2d` makes the memory of a feature map.

    `Tensor.contiguous` would leave the strides of a single channel as they are.
    """
    return image.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format).permute(0, 3, 1, 2)


def kernel_for_stride(stride: int) -> int:
    """The kernel size 2 s (2 s + 1 for odd s), exact with padding (k - s) / 2 for every map that the stride divides."""
    return 2 * stride + stride % 2


class FieldConv2d(nn.Module):
    """A convolution between feature maps with the filter and the bias that `assemble` gives.

    Where `in_irreps` is true they are those of a 1 x 1 convolution in the irrep basis, and the map is expanded first;
    where `shares` is, `convolve_all` may do so for several convolutions at once.
    `tables` (N, J, k, k) are the filters of the expansion and `fourier` is the change of basis (see `irreps.py`).
    """

    tables: Tensor
    fourier: Tensor | None

    def __init__(
        self, order: int, kernel_size: int, stride: int, padding: int, circular: bool, lift: bool, groups: int
    ) -> None:
        super().__init__()
        self.order, self.kernel_size, self.stride, self.padding = order, kernel_size, stride, padding
        self.circular, self.lift, self.groups = circular and padding > 0, lift, groups
        self.checks_size = stride > 1 and order > 1
        self.in_irreps = self.shares = False
        # A 1 x 1 convolution knows no dilation, but PyTorch takes one without, of a small batch on one thread, to a
        # library that is half as fast on some processors (ADR 13).
        self.dilation = 2

    def _apply(self, fn: Any, recurse: bool = True) -> "FieldConv2d":
        super()._apply(fn, recurse)
        self.dilation = 2 if next(self.parameters()).device.type == "cpu" else 1
        return self

    def assemble(self, in_irreps: bool | None = None) -> tuple[Tensor, Tensor | None]:
        """Filter and bias of `forward`, or, where `in_irreps` is given, of `contract` (true) or of a dense convolution."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, H, W, N, C), or images (B, C, H, W) where `lift` is true, to (B, H', W', N, O) of the same dtype."""
        if not self.lift:
            check_order(x.shape[3], self.order)
        filter, bias = self.assemble()
        if self.in_irreps:
            return self.contract(self.expand(x), filter, bias)
        image = self._padded(channels_last(x) if self.lift else x.flatten(3).permute(0, 3, 1, 2))
        return self._convolve(image, filter, bias, self.groups).permute(0, 2, 3, 1).unflatten(3, (self.order, -1))

    def expand(self, x: Tensor) -> Tensor:
        """Maps (B, H, W, N, C) to coefficients (B, H', W', N, J * C) in the irrep basis, which `contract` takes."""
        fourier = self.fourier
        assert fourier is not None
        if self.kernel_size > 1:
            image = self._padded(x.flatten(3).permute(0, 3, 1, 2))
            filters = self.tables.to(x.dtype).repeat_interleave(x.shape[4], 0)
            parts = []
            for j in range(self.tables.shape[1]):  # the library is slow where it makes several channels of each
                part = self._convolve(image, filters[:, j : j + 1], None, image.shape[1])
                parts.append(part.permute(0, 2, 3, 1).unflatten(3, (self.order, -1)))
            x = torch.cat(parts, 4)
        return torch.matmul(fourier.to(x.dtype), x)  # PEFT widens the parameters of half-precision models, not buffers

    def contract(self, x: Tensor, filter: Tensor, bias: Tensor | None) -> Tensor:
        """Coefficients (B, H', W', N, J * C), from `expand`, to (B, H', W', N, O): a 1 x 1 group convolution."""
        fourier = self.fourier
        assert fourier is not None
        image = x.flatten(3).permute(0, 3, 1, 2)
        out = F.conv2d(image, filter, bias, dilation=self.dilation, groups=self.order // 2)
        y = out.permute(0, 2, 3, 1).unflatten(3, (self.order, -1))
        return torch.matmul(fourier.to(y.dtype).t(), y)

    def _padded(self, image: Tensor) -> Tensor:
        if self.checks_size:
            check_exact(image.shape[2], image.shape[3], self.kernel_size, self.stride, self.padding)
        if not self.circular:
            return image
        return F.pad(image, (self.padding, self.padding, self.padding, self.padding), mode="circular")

    def _convolve(self, image: Tensor, filter: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        padding = 0 if self.circular else self.padding
        dilation = self.dilation if self.kernel_size == 1 else 1
        if self.stride > 1:
            return convolve_strided(image, filter, bias, self.stride, padding, dilation, groups)
        return F.conv2d(image, filter, bias, padding=padding, dilation=dilation, groups=groups)


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
            only (see `kernels.py`).
        sharers: how many convolutions of the same map, with this one, `convolve_all` takes.

    Raises:
        ValueError: "full" for a group with other turns, unknown basis, even kernel with stride 1, kernel above 32 pixels,
            unknown padding mode, depthwise with unlike or lifted fields, sizes below 1; in forward, a map size for which
            the stride breaks exactness.

    Attributes:
        weight: coefficients (out_fields, in_fields, |H|, J); (out_fields, in_chans, 1, J) where `lift` is true and
            (out_fields, 1, 1, J) where `depthwise` is.
        in_features, out_features: channels as NCHW users count them.
        in_irreps: whether `forward` computes in the irrep basis; shares: whether `convolve_all` does, on one expansion.
    """

    index: Tensor
    irreps: Tensor | None
    steering: Tensor | None

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
        sharers: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_convolution(in_fields, out_fields, kernel_size, stride, padding_mode, depthwise, lift, sharers)
        h = make_group(group)
        check_basis(basis, h)
        if padding is None:
            padding = max(kernel_size - stride + 1, 0) // 2
        in_features, out_features = in_fields * (1 if lift else h.order), out_fields * h.order
        groups = out_features if depthwise else 1
        super().__init__(h.order, kernel_size, stride, padding, padding_mode == "circular", lift, groups)
        functions = planar_tables(h, kernel_size, basis).shape[1]
        mixes = not (lift or depthwise)
        pointwise = mixes and (kernel_size, stride, padding) == (1, 1, 0)
        self.in_irreps = pointwise and computes_in_irreps(h.order, min(in_features, out_features))
        larger = mixes and kernel_size > 1
        self.pays_alone = larger and should_expand(h.order, kernel_size, functions, out_features)
        self.pays_shared = larger and should_expand(h.order, kernel_size, functions, sharers * out_features)
        self.group, self.basis = h, basis
        self.depthwise = depthwise
        self.in_fields, self.out_fields = in_fields, out_fields
        self.in_features, self.out_features = in_features, out_features

        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        shape = (out_fields, 1 if depthwise else in_fields, 1 if lift or depthwise else h.order, functions)
        self.weight = nn.Parameter(torch.empty(shape, **factory))
        self.bias = nn.Parameter(torch.empty(out_fields, **factory)) if bias else None
        tables = torch.empty(h.order, functions, kernel_size, kernel_size, **factory)
        self.register_buffer("tables", tables, persistent=False)
        basis_changes = dict(fourier=(h.order, h.order), irreps=(h.order // 2, 2, 2, h.order))
        for name, size in basis_changes.items():
            wanted = self.in_irreps or self.pays_shared
            self.register_buffer(name, torch.empty(size, **factory) if wanted else None, persistent=False)
        steering = torch.empty(h.order, functions, functions, **factory) if self.pays_shared else None
        self.register_buffer("steering", steering, persistent=False)
        self.init_non_persistent_buffers()
        self._choose()
        self.reset_parameters()

    def init_non_persistent_buffers(self) -> None:
        """Fills the tables, and the change of basis where there is one."""
        with torch.no_grad():
            self.tables.copy_(torch.from_numpy(planar_tables(self.group, self.kernel_size, self.basis)))
            if self.fourier is not None and self.irreps is not None:
                self.fourier.copy_(torch.from_numpy(fourier_matrix(self.group)))
                self.irreps.copy_(torch.from_numpy(irrep_pairs(self.group)))
            if self.steering is not None:
                matrices = steering_matrices(self.group, self.kernel_size, self.basis)[self.group.inverse]
                self.steering.copy_(torch.from_numpy(matrices))
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
        self._choose()
        return self

    def _choose(self) -> None:
        """An expansion is for CPUs; other devices are best at dense filters."""
        on_cpu = self.weight.device.type == "cpu"
        self.shares = self.pays_shared and on_cpu
        if self.kernel_size > 1:
            self.in_irreps = self.pays_alone and on_cpu

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

    def assemble(self, in_irreps: bool | None = None) -> tuple[Tensor, Tensor | None]:
        """As in `FieldConv2d`."""
        in_irreps = self.in_irreps if in_irreps is None else in_irreps
        if not in_irreps:
            return self.filter(), None if self.bias is None else self.bias.repeat(self.order)
        irreps, steering = self.irreps, self.steering
        assert irreps is not None
        weight = self.weight.flatten(2)
        if steering is not None:
            weight = expanded_weight(self.weight, steering.to(self.weight.dtype))
        filter = grouped_filter(weight, irreps.to(self.weight.dtype))
        if self.bias is None:
            return filter, None
        # A constant has the trivial coefficient alone, the first.
        return filter, F.pad(math.sqrt(self.order) * self.bias, (0, (self.order - 1) * self.out_fields))

    def get_extra_state(self) -> Tensor:
        """The fingerprint of the basis as the tables hold it, which every state dict carries."""
        return torch.tensor(fingerprint_of(self.tables, self.group, self.kernel_size, self.basis))

    def set_extra_state(self, state: Tensor) -> None:
        """Raises ValueError for the fingerprint of another basis."""
        if not isinstance(state, Tensor):  # torch.distributed's stand-in, as it loads sharded weights one by one
            return
        expected = torch.tensor(fingerprint(self.group, self.kernel_size, self.basis))
        # In a state dict that was averaged or cast as a whole it is a float, and rounded.
        rounding = 4 * torch.finfo(state.dtype).eps if state.is_floating_point() else 0.0
        if not torch.isclose(state.cpu(), expected.to(state.dtype), rtol=rounding, atol=0.0):
            raise UserError(
                f"the weights were trained in another kernel basis (fingerprint {state.item()}) than this installation "
                f"builds for {self.group}, kernel {self.kernel_size} and basis={self.basis} ({expected.item()})"
            )

    def extra_repr(self) -> str:
        kind = "lift, " if self.lift else "depthwise, " if self.depthwise else ""
        return (
            f"{self.in_fields}, {self.out_fields}, kernel_size={self.kernel_size}, group={self.group}, {kind}"
            f"stride={self.stride}, padding={self.padding}, basis={self.basis}"
        )


def share_expansion(convs: Sequence[nn.Module]) -> bool:
    """Whether these convolutions of one map can, and should, be computed on one expansion of it.

    Not where one is in a wrapper, such as an adapter, or has hooks: both want to see its whole input and output.
    """
    forward = FieldConv2d.forward
    plain = [
        conv for conv in convs if getattr(conv.forward, "__func__", None) is forward and isinstance(conv, FieldConv2d)
    ]
    if len(plain) < len(convs) or not all(conv.shares and conv.bias is not None for conv in plain):
        return False
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(conv, kind) for conv in plain for kind in hooks):
        return False
    return len({(conv.order, conv.tables.shape, conv.stride, conv.padding, conv.circular) for conv in plain}) == 1


def convolve_all(convs: Sequence[nn.Module], x: Tensor) -> Sequence[Tensor]:
    """What each of several convolutions makes of x (B, H, W, N, C): on one expansion of it where they share one."""
    if isinstance(x, torch.fx.Proxy) or not share_expansion(convs):  # fx records the calls of modules
        return [conv(x) for conv in convs]
    plain = cast(Sequence[FieldConv2d], convs)
    first = plain[0]
    filters, biases = zip(*(conv.assemble(in_irreps=True) for conv in plain), strict=True)
    # One convolution, for what it reads is J times as large as x.
    filter = torch.cat([filter.unflatten(0, (first.order, -1)) for filter in filters], 1).flatten(0, 1)
    bias = torch.cat([bias.view(first.order, -1) for bias in biases], 1).flatten()
    fields = [bias.numel() // first.order for bias in biases]
    return first.contract(first.expand(x), filter, bias).split(fields, -1)


def group_convolution(
    in_fields: int, out_fields: int, kernel_size: int, group: str | Group, separable: bool = False, **conv: Any
) -> nn.Module:
    """A k x k `SteerableConv2d`, or with `separable` a depthwise k x k one and then 1 x 1, as in CvT (Wu et al. 2021,
    arXiv:2103.15808); `conv` are further arguments of the k x k one."""
    if not separable or kernel_size == 1:
        return SteerableConv2d(in_fields, out_fields, kernel_size, group, **conv)
    conv.pop("sharers", None)  # a depthwise convolution has nothing to expand
    factory = {key: conv[key] for key in ("device", "dtype") if key in conv}
    return nn.Sequential(
        SteerableConv2d(in_fields, in_fields, kernel_size, group, depthwise=True, bias=False, **conv),
        SteerableConv2d(in_fields, out_fields, 1, group, **factory),
    )
