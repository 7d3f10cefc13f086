"""Group convolutions on feature maps (B, H, W, N, C): lifting, regular to regular, depthwise and 1 x 1 (poster eq. 1 and 2).

A filter is k[g, gh](x) = psi_h(g^-1 x), with the planar functions psi_h = sum_j weight[..., h, j] b_j. The tables of `kernels.py`
hold b_j(g^-1 x). The filter block for output element g is therefore the coefficients times table g, with the input's group axis
in the order g^-1 m. `conv2d` runs on the view (B, N * C, H, W) of the map, which is channels-last. `conv_plans.py` chooses
between this and the basis of irreps (`irreps.py`).
"""

import math
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_choice, check_int
from gcsa.groups import Group, group as make_group
from gcsa.layers.buffers import ComputedBuffers
from gcsa.layers.conv_plans import ConvShapes, Plan, choose_plan
from gcsa.layers.irreps import expanded_weight, fourier_matrix, grouped_filter, irrep_pairs
from gcsa.layers.kernels import (
    check_basis,
    count_functions,
    fingerprint,
    fingerprint_of,
    planar_tables,
    steering_matrices,
)
from gcsa.layers.layout import from_nchw, to_nchw

LARGEST_KERNEL = 32  # the planar tables of larger ones take minutes and hundreds of megabytes
PADDING_MODES = ("zeros", "circular")


@torch.fx.wrap
@register_notrace_function
def check_exact(height: int, width: int, kernel_size: int, stride: int, padding: int) -> None:
    """Raises UserError unless rotations by 90 degrees commute with the stride: (size + 2 p - k) mod s = 0 on both axes."""
    for size in (height, width):
        rest = (size + 2 * padding - kernel_size) % stride
        if rest != 0:
            below = size - rest
            near = f"{below} or {below + stride}" if below >= max(kernel_size - 2 * padding, 1) else f"{below + stride}"
            raise UserError(
                f"a map of {height} x {width} breaks exact equivariance in a convolution with kernel {kernel_size}, "
                f"stride {stride} and padding {padding}: use a size of {near}",
                "input.size",
            )


@torch.fx.wrap
@register_notrace_function
def check_order(axis: int, order: int) -> None:
    """Raises UserError for a map whose group axis is not as long as the group, even if the number of channels fits."""
    if axis != order:
        raise UserError(
            f"a convolution of a group of order {order} takes maps (B, H, W, {order}, C), not (B, H, W, {axis}, C)",
            "input.order",
        )


def kernel_for_stride(stride: int) -> int:
    """The kernel size 2 s (2 s + 1 for odd s), which is exact with padding (k - s) / 2 for every map that the stride divides."""
    return 2 * stride + stride % 2


def input_order(group: Group, width: int) -> Tensor:
    """The input elements g^-1 m at [g, m], plus one half, (N, width); `width` is N, or 1 where there is no group axis to mix.

    These are numbers that `expand_filter` truncates, not indices: an average of weights (EMA) also averages buffers, which would
    truncate 2.999 to 2.
    """
    order = group.cayley[group.inverse][:, :width] if width > 1 else 0 * group.inverse[:, None]
    return torch.from_numpy(order + 0.5)


def expand_filter(weight: Tensor, tables: Tensor, index: Tensor) -> Tensor:
    """The filter blocks (N, O, M, C, k, k), by element out, field out, element in and field in.

    Args:
        weight: coefficients (O, C, M, J); M is N between regular fields, and 1 from an image or where depthwise.
        tables: (N, J, k, k), the functions b_j(g^-1 x).
        index: (N, M), from `input_order`.
    """
    ordered = weight[:, :, index.long()]
    if tables.shape[-1] == 1:  # the one planar function of a 1 x 1 kernel is the constant 1
        return ordered.permute(2, 0, 3, 1, 4).unsqueeze(-1)
    # PEFT, FSDP's mixed precision and a state dict that is assigned cast parameters, not buffers.
    return torch.einsum("ocgmj,gjxy->gomcxy", ordered, tables.to(ordered.dtype))


@torch.fx.wrap
@register_notrace_function
def convolve_strided(
    image: Tensor, filter: Tensor, bias: Tensor | None, stride: int, padding: int, dilation: int, groups: int
) -> Tensor:
    """`conv2d`. A depthwise one runs in float32 where autocast on a CPU would take bfloat16, whose backward pass is ten times
    as slow or more (ADR 29)."""
    if not torch.jit.is_scripting():  # noqa: SIM102 (TorchScript knows no autocast, and skips an if of this condition only)
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


class FieldConv2d(nn.Module):
    """A convolution between feature maps whose filter and bias `assemble` gives.

    Attributes:
        plan: how it is computed.
        in_irreps: whether `forward` computes in the basis of irreps; a map is then expanded first and contracted to the output.
        tables: (N, J, k, k), the filters of the expansion.
        fourier: (N, N), the change of basis, or None where no plan needs it.
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
        self.plan, self.in_irreps = Plan(), False
        # A dilation does not change a 1 x 1 kernel. Without it, PyTorch runs a small batch on one thread with a library that is
        # half as fast on some processors (ADR 13).
        self.dilation = 2

    def _apply(self, fn: Any, recurse: bool = True) -> "FieldConv2d":
        super()._apply(fn, recurse)
        self.dilation = 2 if next(self.parameters()).device.type == "cpu" else 1
        return self

    def assemble(self, in_irreps: bool) -> tuple[Tensor, Tensor | None]:
        """Filter and bias: those of `contract` where `in_irreps` is true, else those of a dense convolution."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, H, W, N, C), or images (B, C, H, W) where `lift` is true, to (B, H', W', N, O) of the same dtype.

        Raises UserError for a map of another group order or of a size for which the stride breaks exactness.
        """
        if not self.lift:
            check_order(x.shape[3], self.order)
        filter, bias = self.assemble(self.in_irreps)
        if self.in_irreps:
            return self.contract(self.expand(x), filter, bias)
        image = self._padded(channels_last(x) if self.lift else to_nchw(x))
        return from_nchw(self._convolve(image, filter, bias, self.groups), self.order)

    def expand(self, x: Tensor) -> Tensor:
        """Maps (B, H, W, N, C) to coefficients (B, H', W', N, J * C) in the basis of irreps, which `contract` takes."""
        fourier = self.fourier
        assert fourier is not None
        if self.kernel_size > 1:
            image = self._padded(to_nchw(x))
            filters = self.tables.to(x.dtype).repeat_interleave(x.shape[4], 0)
            parts = []
            for j in range(self.tables.shape[1]):  # a single call, with several channels out of each, is slow
                part = self._convolve(image, filters[:, j : j + 1], None, image.shape[1])
                parts.append(from_nchw(part, self.order))
            x = torch.cat(parts, 4)
        return torch.matmul(fourier.to(x.dtype), x)  # PEFT widens the parameters of half-precision models, not buffers

    def contract(self, x: Tensor, filter: Tensor, bias: Tensor | None) -> Tensor:
        """Coefficients (B, H', W', N, J * C) from `expand` to (B, H', W', N, O): a 1 x 1 group convolution."""
        fourier = self.fourier
        assert fourier is not None
        out = F.conv2d(to_nchw(x), filter, bias, dilation=self.dilation, groups=self.order // 2)
        y = from_nchw(out, self.order)
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
    """A convolution that is equivariant to the group's rotations and reflections, exactly so to those of the pixel grid.

    Args:
        in_fields: regular fields in, or image channels where `lift` is true.
        out_fields: regular fields out.
        kernel_size: side of the kernel in pixels.
        group: such as "c8" or "d4".
        lift: take images (B, C, H, W) to feature maps, instead of feature maps to feature maps.
        stride, padding: as in `nn.Conv2d`; the default padding keeps size / stride positions.
        padding_mode: "zeros", or "circular" for exact cyclic shifts.
        depthwise: each channel sees only itself, k[g, gh] = 0 unless h is the identity (in_fields = out_fields); a 1 x 1
            convolution behind it mixes fields and group elements.
        bias: one number for each field.
        basis: "band", smooth filters, or "full", all filters, for groups that map the pixel grid onto itself (`kernels.py`).
        num_siblings: number of convolutions of the same map, this one included, that `qkv.py` computes together.
        plan: how to compute it on every device; None lets `choose_plan` decide for the device.

    Raises:
        UserError: a basis that the group does not have, an even kernel with stride 1, a kernel above 32 pixels, an unknown
            padding mode, depthwise with different or lifted fields, and sizes below 1.

    Attributes:
        weight: coefficients (out_fields, in_fields, |H|, J); (out_fields, in_chans, 1, J) where `lift` is true, and
            (out_fields, 1, 1, J) where `depthwise` is.
        in_features, out_features: channels as NCHW users count them.
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
        num_siblings: int = 1,
        plan: Plan | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_int("in_fields", in_fields)
        check_int("out_fields", out_fields)
        check_int("kernel_size", kernel_size, 1, LARGEST_KERNEL)
        check_int("stride", stride)
        check_int("num_siblings", num_siblings)
        check_choice("padding_mode", padding_mode, PADDING_MODES)
        if kernel_size % 2 == 0 and stride == 1:
            raise UserError(
                f"kernel_size={kernel_size} has no centre: use {kernel_size + 1}, or a stride above 1", "kernel_size"
            )
        if depthwise and (lift or in_fields != out_fields):
            raise UserError(
                f"depthwise needs as many fields out as in, and no lifting, not {in_fields} to {out_fields}",
                "depthwise",
            )
        h = make_group(group)
        check_basis(basis, h)
        if padding is None:
            padding = max(kernel_size - stride + 1, 0) // 2
        in_features, out_features = in_fields * (1 if lift else h.order), out_fields * h.order
        groups = out_features if depthwise else 1
        super().__init__(h.order, kernel_size, stride, padding, padding_mode == "circular", lift, groups)
        self.group, self.basis, self.depthwise = h, basis, depthwise
        self.in_fields, self.out_fields = in_fields, out_fields
        self.in_features, self.out_features = in_features, out_features
        functions = count_functions(kernel_size, basis)
        self.shapes = ConvShapes(
            h.order,
            kernel_size,
            functions,
            in_features,
            out_features,
            pointwise=(kernel_size, stride, padding) == (1, 1, 0),
            mixes=not (lift or depthwise),
            num_siblings=num_siblings,
        )
        self.fixed_plan = plan

        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        width = 1 if lift or depthwise else h.order
        shape = (out_fields, 1 if depthwise else in_fields, width, functions)
        self.weight = nn.Parameter(torch.empty(shape, **factory))
        self.bias = nn.Parameter(torch.empty(out_fields, **factory)) if bias else None
        # The buffers include those that a CPU needs, because the module may be moved there.
        on_cpu = plan or choose_plan(self.shapes, "cpu")
        expands = on_cpu.use_shared_expansion or on_cpu.method == "expansion"
        in_irreps = expands or on_cpu.method == "irreps"
        buffers: dict[str, tuple[int, ...] | None] = dict(
            tables=(h.order, functions, kernel_size, kernel_size),
            index=(h.order, width),
            fourier=(h.order, h.order) if in_irreps else None,
            irreps=(h.order // 2, 2, 2, h.order) if in_irreps else None,
            steering=(h.order, functions, functions) if expands else None,
        )
        for name, size in buffers.items():
            self.register_buffer(name, None if size is None else torch.empty(size, **factory), persistent=False)
        self.init_non_persistent_buffers()
        self._make_plan()
        self.reset_parameters()

    def init_non_persistent_buffers(self) -> None:
        """Fills the tables, and the change of basis where there is one; not on the meta device, where weights are compared with
        a network before anything is computed."""
        if self.tables.is_meta:
            return
        with torch.no_grad():
            self.tables.copy_(torch.from_numpy(planar_tables(self.group, self.kernel_size, self.basis)))
            self.index.copy_(input_order(self.group, self.weight.shape[2]))
            if self.fourier is not None and self.irreps is not None:
                self.fourier.copy_(torch.from_numpy(fourier_matrix(self.group)))
                self.irreps.copy_(torch.from_numpy(irrep_pairs(self.group)))
            if self.steering is not None:
                matrices = steering_matrices(self.group, self.kernel_size, self.basis)[self.group.inverse]
                self.steering.copy_(torch.from_numpy(matrices))

    def _apply(self, fn: Any, recurse: bool = True) -> "SteerableConv2d":
        super()._apply(fn, recurse)
        self._make_plan()
        return self

    def _make_plan(self) -> None:
        self.plan = self.fixed_plan or choose_plan(self.shapes, self.weight.device.type)
        self.in_irreps = self.plan.method != "direct"

    def reset_parameters(self) -> None:
        """Keeps the variance: the tables have unit energy, so each coefficient gets 1 over the fan-in."""
        fan_in = math.prod(self.weight.shape[1:])
        nn.init.trunc_normal_(self.weight, std=1 / math.sqrt(fan_in))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def filter(self) -> Tensor:
        """The dense filter as `conv2d` takes it: (N * O, M * C, k, k); M = C = 1 where depthwise."""
        blocks = expand_filter(self.weight, self.tables, self.index)
        n, o, m, c, k, _ = blocks.shape
        return blocks.reshape(n * o, m * c, k, k)

    def assemble(self, in_irreps: bool) -> tuple[Tensor, Tensor | None]:
        """As in `FieldConv2d`."""
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
        # A constant has only the trivial coefficient, which is the first.
        return filter, F.pad(math.sqrt(self.order) * self.bias, (0, (self.order - 1) * self.out_fields))

    def get_extra_state(self) -> Tensor:
        """The fingerprint of the basis in the tables, or a tensor as empty as they are. Every state dict contains it."""
        if self.tables.is_meta:
            return torch.empty((), dtype=torch.int64, device="meta")
        return torch.tensor(fingerprint_of(self.tables, self.group, self.kernel_size, self.basis))

    def set_extra_state(self, state: Tensor) -> None:
        """Raises UserError for the fingerprint of another basis."""
        # torch.distributed, which loads sharded weights one by one, gives a placeholder.
        if not isinstance(state, Tensor) or state.is_meta:
            return
        expected = torch.tensor(fingerprint(self.group, self.kernel_size, self.basis))
        # Averaging or casting a whole state dict makes it a rounded float.
        rounding = 4 * torch.finfo(state.dtype).eps if state.is_floating_point() else 0.0
        if not torch.isclose(state.cpu(), expected.to(state.dtype), rtol=rounding, atol=0.0):
            raise UserError(
                f"the weights were trained in another kernel basis (fingerprint {state.item()}) than this installation "
                f"builds for {self.group}, kernel {self.kernel_size} and basis={self.basis} ({expected.item()})",
                "weights.basis",
            )

    def extra_repr(self) -> str:
        kind = "lift, " if self.lift else "depthwise, " if self.depthwise else ""
        return (
            f"{self.in_fields}, {self.out_fields}, kernel_size={self.kernel_size}, group={self.group}, {kind}"
            f"stride={self.stride}, padding={self.padding}, basis={self.basis}"
        )


def group_convolution(
    in_fields: int, out_fields: int, kernel_size: int, group: str | Group, separable: bool = False, **conv: Any
) -> nn.Module:
    """A k x k `SteerableConv2d` with the further arguments `conv`. With `separable`, a depthwise k x k one followed by a 1 x 1 one,
    as in CvT (Wu et al. 2021, arXiv:2103.15808)."""
    if not separable or kernel_size == 1:
        return SteerableConv2d(in_fields, out_fields, kernel_size, group, **conv)
    conv.pop("num_siblings", None)  # a depthwise convolution has nothing to expand
    factory = {key: conv[key] for key in ("device", "dtype") if key in conv}
    return nn.Sequential(
        SteerableConv2d(in_fields, in_fields, kernel_size, group, depthwise=True, bias=False, **conv),
        SteerableConv2d(in_fields, out_fields, 1, group, **factory),
    )
