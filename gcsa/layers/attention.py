"""Attention between positions and group elements in three ways, on plain queries, keys and values.

Each maps q (B, H, W, N, C) and k, v (B, H', W', N, C) to (B, H, W, N, C). None depends on the position of a token, so each is
equivariant.

| attention | tokens |
|-----------|------------------------------------------------------------------------------------------------|
| `group`   | pairs (y, h) with a softmax over all of them: poster eq. 3 and 4                               |
| `spatial` | positions; the whole fibre of a position is one token, as in REViT's code                      |
| `linear`  | as `group`, with positive random features instead of the softmax kernel (FAVOR+, Choromanski   |
|           | et al. 2021, Rethinking Attention with Performers)                                             |
"""

import functools
import math
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function, use_fused_attn
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_divisor, check_int, check_rate
from gcsa.groups import Group, group as make_group
from gcsa.layers.conv import FieldConv2d, SteerableConv2d, check_exact
from gcsa.layers.favor import LinearAttention
from gcsa.layers.layout import from_tokens, pixel_coordinates, to_tokens
from gcsa.layers.norm import FieldDropout
from gcsa.layers.qkv import QueryKeyValue
from gcsa.layers.windows import (
    SHAPES,
    attention_bias,
    block_mask,
    check_radius,
    check_window_size,
    dropout_factors,
    window_partition,
    window_reverse,
)


def dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, factors: Tensor | None
) -> Tensor:
    """`scaled_dot_product_attention`, with all weights in memory where `factors` multiply them: the fused kernels draw their own."""
    if factors is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    logits = (q * scale) @ k.transpose(-2, -1)
    return ((logits if mask is None else logits + mask).softmax(-1) * factors) @ v


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, dim: int, mask: Tensor | None = None, factors: Tensor | None = None
) -> Tensor:
    """`scaled_dot_product_attention` of (B, heads, T, D), of which `dim` numbers are not padding, with its weights times
    `factors`.

    Training under autocast on a CPU runs it in float32: the backward pass in bfloat16 is up to six times as slow (ADR 29).
    """
    scale = 1 / math.sqrt(dim)
    if not torch.jit.is_scripting():  # noqa: SIM102 (TorchScript knows no autocast, and skips an if of this condition only)
        if torch.is_grad_enabled() and torch.is_autocast_enabled("cpu"):
            wide = torch.promote_types(q.dtype, torch.float32)
            q, k, v, mask = q.to(wide), k.to(wide), v.to(wide), None if mask is None else mask.to(wide)
            factors = None if factors is None else factors.to(wide)
            with torch.autocast("cpu", enabled=False):
                return dot_product_attention(q, k, v, scale, mask, factors)
    return dot_product_attention(q, k, v, scale, mask, factors)


def for_tokens(x: Tensor, tokens: int) -> Tensor:
    """Numbers of pairs of positions, (..., Q, J), for each pair of their tokens, (..., Q * T, J * T)."""
    return x.repeat_interleave(tokens, -2).repeat_interleave(tokens, -1)


@torch.fx.wrap
@register_notrace_function
def attend_everywhere(q: Tensor, k: Tensor, v: Tensor, drop: float = 0.0, circular: bool = False) -> Tensor:
    """Softmax attention of every token to every token, on tensors from `to_tokens`.

    Of its weights `drop` are dropped (`dropout_factors`), by distances round the map if `circular` is true. Heads are padded to a multiple of 8 numbers, which the fused kernels of GPUs need, and to at least 16, because the kernel of
    CPUs is slower with 8 (ADR 13).
    """
    shape, dim = q.shape, q.shape[-1]
    factors: Tensor | None = None
    if drop > 0:
        b, heads, height, width, tokens, _ = shape
        queries, keys = pixel_coordinates(height, width, q), pixel_coordinates(k.shape[2], k.shape[3], q)
        offsets = (keys * (height // k.shape[2])).flatten(0, 1) - queries.flatten(0, 1)[:, None]
        if circular:
            sides = torch.tensor([width, height], dtype=offsets.dtype, device=offsets.device)
            offsets = torch.minimum(offsets.abs(), sides - offsets.abs())
        factors = dropout_factors(offsets, max(height, width), b * heads, drop, q).unflatten(0, (b, heads))
        factors = for_tokens(factors, tokens)
    q, k, v = q.flatten(2, 4), k.flatten(2, 4), v.flatten(2, 4)
    more = max(dim + -dim % 8, 16) - dim
    if more == 0:
        return softmax_attention(q, k, v, dim, None, factors).reshape(shape)
    q, k, v = (F.pad(x, (0, more)) for x in (q, k, v))
    out = softmax_attention(q, k, v, dim, None, factors)
    return out[:, :, :, :dim].reshape(shape)


@torch.fx.wrap
@register_notrace_function
def attend_nearby(
    q: Tensor, k: Tensor, v: Tensor, radius: int, shape: str, circular: bool, drop: float = 0.0
) -> Tensor:
    """Softmax attention to the tokens at most `radius` positions away (square or disc), on tensors from `to_tokens`.

    It runs in windows of queries (`windows.py`), so memory grows linearly with the map. Positions outside the map are masked,
    or wrap round if `circular` is true. Of the weights `drop` are dropped (`dropout_factors`).

    Raises UserError for a radius larger than the map or, if `circular` is true, half of it.
    """
    b, heads, height, width, tokens, dim = q.shape
    check_window_size(radius, height, width, circular)
    # Smaller windows have more border to compute, larger ones more masked pairs.
    window = min(max(2 * radius, 4), 16)
    more = -dim % 8  # the fused kernels of GPUs need multiples of 8
    if more > 0:
        q, k, v = F.pad(q, (0, more)), F.pad(k, (0, more)), F.pad(v, (0, more))
    q = window_partition(q, window, window, dim=2)  # (B, heads, windows, positions, T, D)
    k, v = [window_partition(x, window, window, radius, circular, dim=2) for x in (k, v)]
    # Windows take the axis of heads, so that the bias of each serves all images and heads.
    q, k, v = [x.flatten(3, 4).flatten(0, 1) for x in (q, k, v)]
    bias = attention_bias(height, width, window, radius, q, shape, circular)
    # The kernel needs rows of a multiple of 8 numbers in memory; without this padding, torch copies them.
    bias = F.pad(bias, (0, -bias.shape[2] % 8))[..., None].expand(-1, -1, -1, tokens).flatten(2)
    bias = bias[:, :, None].expand(-1, -1, tokens, -1).flatten(1, 2)[None, ..., : k.shape[2]]
    factors: Tensor | None = None
    if drop > 0:
        keys = pixel_coordinates(window + 2 * radius, window + 2 * radius, q).flatten(0, 1)
        offsets = keys - pixel_coordinates(window, window, q).flatten(0, 1)[:, None]
        factors = for_tokens(dropout_factors(offsets, window + radius, b * heads, drop, q), tokens)[:, None]
    out = softmax_attention(q, k, v, dim, bias, factors)
    out = out.unflatten(2, (-1, tokens)).unflatten(0, (b, heads))
    return window_reverse(out[..., :dim] if more > 0 else out, window, window, height, width, dim=2)


@functools.cache
def compiled() -> Any:
    """The compiled kernel. Without compilation, flex attention computes all pairs."""
    return torch.compile(flex_attention)


@torch.fx.wrap
@register_notrace_function
@torch.jit.ignore
def attend_nearby_fused(q: Tensor, k: Tensor, v: Tensor, radius: int, shape: str, circular: bool) -> Tensor:
    """`attend_nearby` by flex attention: the same arguments and result. The caller checks the radius."""
    *_, height, width, tokens, dim = q.shape
    # Tensor cores take heads of a multiple of 16 numbers.
    heads = (F.pad(x.flatten(2, 4), (0, -dim % 16)) for x in (q, k, v))
    mask = block_mask(height, width, tokens, radius, shape, circular, q.device)
    attend: Any = flex_attention if torch.compiler.is_compiling() else compiled()
    return attend(*heads, block_mask=mask, scale=1 / math.sqrt(dim))[..., :dim].reshape(q.shape)


class GroupAttention(nn.Module):
    """Poster eq. 3 and 4: every (x, g) attends to every (y, h), or to those with y in a neighbourhood of x.

    Neighbourhoods on a GPU use flex attention if timm's experimental kernels are enabled (`attend_nearby_fused`).

    Args:
        order: elements of the group, N.
        fields: regular fields C.
        num_heads: attention heads; must divide `fields`.
        radius: of the neighbourhood in positions; "all" for all positions.
        shape: of the neighbourhood, "square" or "disc".
        circular: whether maps wrap round.
        attn_drop: probability of dropping a weight in training, with one draw for each head and distance (`dropout_factors`). The
            weights are then in memory, as with any attention that is not fused.

    Raises:
        ValueError: another radius, shape or probability; in forward, a map smaller than the radius.
    """

    fused_attn: torch.jit.Final[bool]
    fibre = False
    options = ("radius", "shape", "attn_drop")  # arguments of this attention only

    def __init__(
        self,
        order: int,
        fields: int,
        num_heads: int,
        radius: int | str | None = "all",
        shape: str = "square",
        circular: bool = False,
        attn_drop: float = 0.0,
    ) -> None:
        super().__init__()
        check_rate("attn_drop", attn_drop)
        if shape not in SHAPES:
            raise UserError(f"unknown neighbourhood shape {shape!r}: choose {' or '.join(SHAPES)}", "shape")
        self.order, self.num_heads, self.radius, self.shape, self.circular = (
            order,
            num_heads,
            check_radius(radius),
            shape,
            circular,
        )
        self.attn_drop = float(attn_drop)
        self.whole_fibre = self.fibre
        self.fused_attn = use_fused_attn(experimental=True)

    @torch.jit.unused
    def check_map(self, height: int, width: int) -> None:
        """Raises ValueError for a map smaller than the radius."""
        if self.radius is not None:
            check_window_size(self.radius, height, width, self.circular)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v (B, H, W, N, C) to (B, H, W, N, C)."""
        q, k, v = (to_tokens(x, self.num_heads, self.whole_fibre) for x in (q, k, v))
        drop = self.attn_drop if self.training else 0.0
        if self.radius is None:
            out = attend_everywhere(q, k, v, drop, self.circular)
        elif self.fused_attn and q.is_cuda and drop == 0.0:
            check_window_size(self.radius, q.shape[2], q.shape[3], self.circular)
            out = attend_nearby_fused(q, k, v, self.radius, self.shape, self.circular)
        else:
            out = attend_nearby(q, k, v, self.radius, self.shape, self.circular, drop)
        return from_tokens(out, self.order)


class SpatialAttention(GroupAttention):
    """Positions attend to positions; the inner product runs over channels and group elements together."""

    fibre = True


ATTENTION: dict[str, type[GroupAttention] | type[LinearAttention]] = {
    "group": GroupAttention,
    "spatial": SpatialAttention,
    "linear": LinearAttention,
}


class GroupConvSelfAttention(QueryKeyValue):
    """G-CSA on feature maps (B, H, W, N, C), equivariant to translations and the group.

    Args:
        fields: regular fields C.
        num_heads: attention heads; must divide `fields`.
        group: such as "c8".
        attention: "spatial", "group" or "linear"; see the head of this file.
        kernel_size: side of the query, key and value kernels in pixels.
        separable: of queries, keys and values (poster eq. 2), as in `group_convolution`.
        kv_stride: stride of keys and values. Above 1, their kernel is `kernel_for_stride(kv_stride)`, which is exact for every map
            that the stride divides.
        padding_mode: "zeros" or "circular".
        basis: of the k x k filters, as in `SteerableConv2d`.
        proj_drop: probability of dropping a whole output field.
        attention_kwargs: further arguments of the attention, such as `radius`, `shape`, `attn_drop` or `num_random_features`.

    Raises:
        ValueError: an unknown attention, num_heads that does not divide the fields, an even kernel, an argument of another
            attention, a neighbourhood together with kv_stride.
        TypeError: an argument of no attention.
    """

    def __init__(
        self,
        fields: int,
        num_heads: int,
        group: str | Group,
        attention: str = "spatial",
        kernel_size: int = 3,
        separable: bool = False,
        kv_stride: int = 1,
        padding_mode: str = "zeros",
        proj_drop: float = 0.0,
        basis: str = "band",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **attention_kwargs: Any,
    ) -> None:
        check_divisor("num_heads", num_heads, "fields", fields)
        if attention not in ATTENTION:
            raise UserError(f"unknown attention {attention!r}: choose one of {', '.join(ATTENTION)}", "attention")
        check_int("kv_stride", kv_stride)
        kind = ATTENTION[attention]
        known = {key for other in ATTENTION.values() for key in other.options}
        for key in attention_kwargs:
            if key not in known:
                raise TypeError(f"GroupConvSelfAttention got an unexpected keyword argument {key!r}")
            if key not in kind.options:
                raise UserError(
                    f"attention {attention!r} does not take {key!r}: it takes {', '.join(kind.options)}",
                    "attention.option",
                )
        radius = check_radius(attention_kwargs.get("radius"))
        if kv_stride > 1 and radius is not None:
            raise UserError(
                f"radius={radius} needs keys at every position: set kv_stride=1, not {kv_stride}", "radius.kv_stride"
            )
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        conv = dict(padding_mode=padding_mode, basis=basis, **factory)
        super().__init__(fields, kernel_size, group, kv_stride, separable, **conv)
        self.group = make_group(group)
        if padding_mode == "circular" and kind is not LinearAttention:
            attention_kwargs["circular"] = True
        self.attend = kind(self.group.order, fields, num_heads, **attention_kwargs)
        self.attend.to(**factory)
        self.out = SteerableConv2d(fields, fields, 1, self.group, **factory)
        self.proj_drop = FieldDropout(proj_drop)

    @torch.jit.unused
    def check_map(self, height: int, width: int) -> None:
        """Raises ValueError for a map smaller than the radius, and for one that `kv_stride` does not divide."""
        if isinstance(self.attend, GroupAttention):
            self.attend.check_map(height, width)
        for conv in self.k.modules():
            if isinstance(conv, FieldConv2d) and conv.checks_size:
                check_exact(height, width, conv.kernel_size, conv.stride, conv.padding)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape. Raises ValueError for a map that `kv_stride` does not divide."""
        q, k, v = self.project(x)
        return self.proj_drop(self.out(self.attend(q, k, v)))
