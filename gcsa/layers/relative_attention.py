"""Lifting and group self-attention with relative encodings, G-SA: the keys contain position and orientation.

GSA-Nets (Romero and Cordonnier 2021, Group Equivariant Stand-Alone Self-Attention For Vision) as corrected by Schreiber
(GSA-Nets and LoRAs for TrOCR, sections 5, 6 and 8), and GE-ViT (Xu et al. 2023). Every projection acts on the fields of
one element at a time. The output at (i, h) is the sum over h~ of softmax attention to (j, h^) with the logits

    <q(i, h~), phi_k(f(j, h^) + rho_x(h^-1 (x_j - x_i)) + rho_h(r))>,

where r depends on the encoding:

| encoding    | r              | sum over h~           | equivariant |
|-------------|----------------|-----------------------|-------------|
| `original`  | h^-1 h~^-1 h^  | yes                   | no          |
| `corrected` | h~^-1 h^       | yes                   | yes         |
| `gevit`     | h^-1 h^        | no, only h~ = h       | yes         |

rho_h is a table. rho_x(x) = W sin(Omega x + phase) is a network with one hidden layer. By the addition theorem, its product with a
query separates into factors of i and of j, so no tensor over pairs of positions and channels is needed.
"""

# Annotations stay objects here (no `from __future__`), because torch.fx copies them into code that TorchScript reads.
import math
from typing import Any

import numpy as np
import torch
import torch.fx
import torch.nn.functional as F
from numpy.typing import NDArray
from timm.layers import register_notrace_function
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_divisor, check_int, check_rate
from gcsa.groups import Group, group as make_group
from gcsa.layers.buffers import ComputedBuffers
from gcsa.layers.layout import pixel_coordinates
from gcsa.layers.norm import FieldDropout
from gcsa.layers.windows import (
    attention_bias,
    check_radius,
    check_window_size,
    dropout_factors,
    window_partition,
    window_reverse,
)

ENCODINGS = ("original", "corrected", "gevit")


def relative_elements(group: Group, encoding: str) -> NDArray[np.int64]:
    """The element r of the group part of the encoding, at [h, h~, h^].

    An axis has length 1 if r does not depend on it. Raises ValueError for an unknown encoding.
    """
    to = group.cayley[group.inverse]  # [a, b] is a^-1 b
    if encoding == "original":
        return to[:, to]
    if encoding == "corrected":
        return to[None]
    if encoding == "gevit":
        return to[:, None]
    raise UserError(f"unknown encoding {encoding!r}: choose one of {', '.join(ENCODINGS)}", "encoding")


def wave_phases(positions: Tensor, waves: Tensor) -> Tensor:
    """The phases (N, Q, M) of waves with the vectors (N, M, 2) at positions (Q, 2).

    They are not a matrix product, which autocast would run in half precision: that is too coarse for phases of many radians.
    """
    x, y = positions[:, 0, None], positions[:, 1, None]
    return x * waves[:, None, :, 0] + y * waves[:, None, :, 1]


def spatial_logits(u: Tensor, q_phases: Tensor, k_phases: Tensor) -> Tensor:
    """<q(i, h~), phi_k rho_x(h^-1 (x_j - x_i))>, (..., Q, h, h~, J).

    u (..., Q, h, h~, M) are the products of the queries with the amplitudes of the M waves. `q_phases` (h, Q, M) are the phases
    of the waves at x_i, and `k_phases` (h, J, M) those at x_j: sin(b - a) = cos(a) sin(b) - sin(a) cos(b).
    """
    cos, sin = (f.transpose(0, 1).unsqueeze(2).to(u.dtype) for f in (q_phases.cos(), q_phases.sin()))
    queries = torch.cat([u * cos, -u * sin], -1)
    keys = torch.cat([k_phases.sin(), k_phases.cos()], -1).to(u.dtype)
    return torch.einsum("...qhgm,hjm->...qhgj", queries, keys)


def weighted_sum(weights: Tensor, v: Tensor, factors: Tensor | None) -> Tensor:
    """weights (..., Q, h, h^, J), times `factors` that expand to them, and v (..., h^, J, D) to (..., Q, h, D)."""
    weights = weights if factors is None else weights * factors
    out = weights.flatten(-2).flatten(-3, -2) @ v.flatten(-3, -2)
    return out.unflatten(-2, weights.shape[-4:-2])


def attend(content: Tensor, spatial: Tensor, v: Tensor, factors: Tensor | None) -> Tensor:
    """Softmax over (h^, j) of content (..., Q, h, h~, h^, J) + spatial (..., Q, h, h~, J), times `factors`, applied to v
    (..., h^, J, D) and summed over h~: (..., Q, h, D)."""
    logits = content + spatial.unsqueeze(-2)
    return weighted_sum(logits.flatten(-2).softmax(-1).sum(-2).unflatten(-1, logits.shape[-2:]), v, factors)


def attend_in_two_steps(content: Tensor, spatial: Tensor, v: Tensor, factors: Tensor | None) -> Tensor:
    """`attend` for content (..., Q, 1, h~, h^, J) that does not depend on h, at 1 / N of the cost.

    The softmax over (h^, j) is the product of two: over h^, which is the same for every h, and over j of spatial + logsumexp
    over h^.
    """
    inner = content.squeeze(-4).log_softmax(-2)
    total = content.select(-4, 0).select(-2, 0) - inner.select(-2, 0)  # the logsumexp
    outer = (spatial + total.unsqueeze(-3)).softmax(-1)
    weights = torch.einsum("...hgj,...gnj->...hnj", outer, inner.exp())
    return weighted_sum(weights, v, factors)


@torch.fx.wrap
@register_notrace_function
def relative_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    amplitudes: Tensor,
    waves: Tensor,
    phases: Tensor,
    group_encoding: Tensor,
    radius: int,
    window: int = 2,
    drop: float = 0.0,
) -> Tensor:
    """G-SA of q, k, v (B, H, W, N, heads, D) within `radius` rows and columns; a negative radius is everywhere. Of the weights
    `drop` are dropped (`dropout_factors`).

    `amplitudes` (heads, D, M) of M waves with the wave vectors `waves` (N, M, 2), rotated by each h, and `phases` (M);
    `group_encoding` (heads, h, h~, h^, D) is phi_k rho_h(r). An axis has length 1 if r does not depend on it, which identifies
    the encoding. The attention runs in windows of queries (`windows.py`), or on the whole map as one window.
    """
    height, width = q.shape[1:3]
    everywhere = radius < 0
    rows, columns = (height, width) if everywhere else (window, window)
    border = max(radius, 0)
    if everywhere:  # `window_partition` uses unfold, which would fix the map size of an exported model
        q, k, v = (x.flatten(1, 2).unsqueeze(1) for x in (q, k, v))
    else:
        q = window_partition(q, rows, columns)
        k, v = (window_partition(x, rows, columns, border) for x in (k, v))
    q_grid = pixel_coordinates(rows, columns, waves).flatten(0, 1)
    k_grid = pixel_coordinates(rows + 2 * border, columns + 2 * border, waves).flatten(0, 1)

    q = q.permute(0, 4, 1, 2, 3, 5)  # (B, heads, windows, Q, N, D)
    k, v = (x.permute(0, 4, 1, 3, 2, 5) for x in (k, v))  # (B, heads, windows, N, J, D)
    content = q.flatten(3, 4) @ k.flatten(3, 4).transpose(-2, -1)
    content = content.unflatten(4, k.shape[3:5]).unflatten(3, q.shape[3:5])
    # An output depends on every query of its position or, in gevit, on its own only.
    axis = 5 if group_encoding.shape[2] == 1 else 4
    q, content = q.unsqueeze(axis), content.unsqueeze(axis)
    content = content + torch.einsum("bewqhgd,ehgnd->bewqhgn", q, group_encoding).unsqueeze(-1)
    u = torch.einsum("bewqhgd,edm->bewqhgm", q, amplitudes)
    spatial = spatial_logits(u, wave_phases(q_grid, waves), wave_phases(k_grid, waves) + phases)
    if not everywhere:
        spatial = spatial + attention_bias(height, width, window, radius, q)[:, :, None, None]
    factors: Tensor | None = None
    if drop > 0:
        reach = max(rows, columns) + border
        factors = dropout_factors(k_grid - q_grid[:, None], reach, q.shape[0] * q.shape[1], drop, q)
        factors = factors.unflatten(0, (q.shape[0], q.shape[1]))[:, :, None, :, None, None]
    one_for_all = content.shape[4] == 1  # the content does not depend on h
    out = attend_in_two_steps(content, spatial, v, factors) if one_for_all else attend(content, spatial, v, factors)
    return window_reverse(out.permute(0, 2, 3, 4, 1, 5), rows, columns, height, width)


@torch.fx.wrap
@register_notrace_function
def rotated_waves(vectors: Tensor, phases: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Wave vectors (M, 2) rotated by the matrices (N, 2, 2) of the group, (N, M, 2), and the unchanged phases (M).

    They are in float32 or wider, and computed without a matrix product, as in `wave_phases`.
    """
    wide = torch.float64 if vectors.dtype == torch.float64 else torch.float32
    rotated = (matrices.to(wide)[:, None] * vectors.to(wide)[:, None]).sum(-1)  # <omega, h^-1 x> = <h omega, x>
    return rotated, phases.to(wide)


class SpatialEncoding(ComputedBuffers):
    """rho_x(h^-1 x) = W sin(Omega h^-1 x + phase), `fields` numbers, for each h and x in positions."""

    matrices: Tensor

    def __init__(self, fields: int, waves: int, group: Group, factory: dict[str, Any]) -> None:
        super().__init__()
        check_int("waves", waves)
        self.group = group
        self.waves = nn.Linear(2, waves, **factory)
        self.amplitudes = nn.Linear(waves, fields, bias=False, **factory)
        self.register_buffer("matrices", torch.empty(group.order, 2, 2, **factory), persistent=False)
        self.init_non_persistent_buffers()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.waves.weight, std=0.5)  # radians a position: most wavelengths are 10 positions or more
        nn.init.uniform_(self.waves.bias, -math.pi, math.pi)
        nn.init.normal_(self.amplitudes.weight, std=math.sqrt(2 / self.waves.out_features))

    def init_non_persistent_buffers(self) -> None:
        """Fills the matrices of the group's elements."""
        with torch.no_grad():
            self.matrices.copy_(torch.from_numpy(np.stack([self.group.matrix(g) for g in range(self.group.order)])))

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Amplitudes (M, fields), wave vectors (N, M, 2) rotated by each h, and phases (M), from `rotated_waves`."""
        vectors, phases = rotated_waves(self.waves.weight, self.waves.bias, self.matrices)
        return self.amplitudes.weight.T, vectors, phases


class RelativeSelfAttention(ComputedBuffers):
    """G-SA on feature maps (B, H, W, N, C), equivariant to translations and, unless `original`, to the group.

    With group c1 it is self-attention on Z^2 with relative position encodings (section 4 of Schreiber's text).

    Args:
        fields: regular fields C.
        num_heads: attention heads; must divide `fields`.
        group: such as "c4" or "d4".
        encoding: "corrected", "gevit", or "original" as the negative control; see the head of this file.
        radius: of the square neighbourhood in positions; "all": all positions.
        waves: hidden numbers of the spatial encoding.
        proj_drop: probability of dropping a whole output field.
        attn_drop: probability of dropping a weight in training, as in `GroupAttention`.

    Raises:
        ValueError: an unknown encoding, a probability outside [0, 1), num_heads that does not divide the fields, a negative radius, no waves; in forward, a
            map smaller than the radius.
    """

    relative: Tensor

    def __init__(
        self,
        fields: int,
        num_heads: int,
        group: str | Group,
        encoding: str = "corrected",
        radius: int | str | None = "all",
        waves: int = 16,
        proj_drop: float = 0.0,
        attn_drop: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        check_divisor("num_heads", num_heads, "fields", fields)
        check_rate("attn_drop", attn_drop)
        near = check_radius(radius)
        self.group, self.num_heads = make_group(group), num_heads
        self.radius = -1 if near is None else near
        self.scale = (fields // num_heads) ** -0.5
        self.encoding, self.attn_drop = encoding, float(attn_drop)
        self.spatial = SpatialEncoding(fields, waves, self.group, factory)
        self.table = nn.Parameter(torch.empty(self.group.order, fields, **factory))
        # One-hot numbers instead of indices, because weight averaging (EMA) averages buffers and truncates integers.
        shape = relative_elements(self.group, encoding).shape
        self.register_buffer("relative", torch.empty(*shape, self.group.order, **factory), persistent=False)
        self.init_non_persistent_buffers()
        self.q = nn.Linear(fields, fields, **factory)
        self.k = nn.Linear(fields, fields, bias=False, **factory)
        self.v = nn.Linear(fields, fields, **factory)
        self.out = nn.Linear(fields, fields, **factory)
        self.proj_drop = FieldDropout(proj_drop)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Keeps the variance. The output is a sum over h~."""
        std = self.table.shape[1] ** -0.5
        nn.init.normal_(self.table)
        nn.init.trunc_normal_(self.out.weight, std=std / self.relative.shape[1])
        for linear in (self.q, self.k, self.v):
            nn.init.trunc_normal_(linear.weight, std=std)

    def init_non_persistent_buffers(self) -> None:
        """Fills the one-hot numbers of the elements r; not on the meta device, as in `SteerableConv2d`."""
        if self.relative.is_meta:
            return
        one_hot = np.eye(self.group.order)[relative_elements(self.group, self.encoding)]
        with torch.no_grad():
            self.relative.copy_(torch.from_numpy(one_hot))

    @torch.jit.unused
    def check_map(self, height: int, width: int) -> None:
        """Raises ValueError for a map smaller than the radius."""
        check_window_size(self.radius, height, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape. Raises ValueError for a map smaller than the radius."""
        check_window_size(self.radius, x.shape[1], x.shape[2])
        amplitudes, vectors, phases = self.spatial()
        table = torch.einsum("hgnr,rc->hgnc", self.relative.to(self.table.dtype), self.table)
        heads = (self.num_heads, -1)
        q, k, v = self.q(x) * self.scale, self.k(x), self.v(x)
        out = relative_attention(
            q.unflatten(-1, heads),
            k.unflatten(-1, heads),
            v.unflatten(-1, heads),
            self.k(amplitudes).unflatten(-1, heads).permute(1, 2, 0),
            vectors,
            phases,
            self.k(table).unflatten(-1, heads).permute(3, 0, 1, 2, 4),
            self.radius,
            drop=self.attn_drop if self.training else 0.0,
        )
        return self.proj_drop(self.out(out.flatten(4)))


@torch.fx.wrap
@register_notrace_function
def lifting_attention(
    x: Tensor, q: Tensor, k: Tensor, amplitudes: Tensor, waves: Tensor, phases: Tensor, radius: int
) -> Tensor:
    """Means of the image's channels, weighted by lifting self-attention: (B, heads, N, C, H * W).

    Keys and values are linear in the image, so they need not be computed at each neighbour.

    Args:
        x: the image (B, C, H, W).
        q: queries (B, heads, D, H * W).
        k: the linear map (heads, D, C) of the keys.
        amplitudes, waves, phases: as in `relative_attention`.
        radius: of the neighbourhood in pixels.
    """
    side = 2 * radius + 1
    patches = F.unfold(x, side, padding=radius).unflatten(1, (x.shape[1], -1))  # (B, C, K, H * W)
    inside = F.unfold(x.new_ones(1, 1, x.shape[2], x.shape[3]), side, padding=radius)
    encoding = torch.sin(wave_phases(pixel_coordinates(side, side, waves).flatten(0, 1), waves) + phases).to(
        q.dtype
    )  # (N, K, M)
    # One product with the queries for all (h, offset): (B, heads, N * K, H * W).
    spatial = torch.einsum("hjm,edm->ehjd", encoding, amplitudes).flatten(1, 2) @ q
    channels = k.transpose(1, 2) @ q
    content = torch.einsum("bect,bcjt->bejt", channels, patches) + (1 - inside) * -1e4
    weights = (spatial.unflatten(2, encoding.shape[:2]) + content.unsqueeze(2)).softmax(3)
    return torch.stack([(weights * patches[:, None, None, c]).sum(3) for c in range(x.shape[1])], 3)


class LiftingSelfAttention(nn.Module):
    """Self-attention from images to feature maps: at (i, h), softmax over j near i of
    <q(i), phi_k f(j) + rho_x(h^-1 (x_j - x_i))>, applied to phi_v f(j).

    The encoding is added to the keys rather than to f(j), because images have only one to three channels.

    Args:
        in_chans: channels of the image.
        fields: regular fields out.
        num_heads, group, waves: as in `RelativeSelfAttention`.
        radius: of the neighbourhood, in pixels.

    Raises:
        ValueError: as `RelativeSelfAttention`, and no channels.
    """

    def __init__(
        self,
        in_chans: int,
        fields: int,
        num_heads: int,
        group: str | Group,
        radius: int = 2,
        waves: int = 16,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        check_int("in_chans", in_chans)
        check_int("radius", radius, 0)
        check_divisor("num_heads", num_heads, "fields", fields)
        self.group, self.num_heads, self.radius = make_group(group), num_heads, int(radius)
        self.scale = (fields // num_heads) ** -0.5
        self.spatial = SpatialEncoding(fields, waves, self.group, factory)
        # timm adapts a single weight with four axes to other numbers of channels. Keys and values need no bias: one of all keys
        # does not change the softmax, and one of all values is part of the bias of `out`.
        self.qkv = nn.Conv2d(in_chans, 3 * fields, 1, bias=False, **factory)
        self.q_bias = nn.Parameter(torch.empty(fields, **factory))
        self.out = nn.Linear(fields, fields, **factory)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.q_bias)
        nn.init.trunc_normal_(self.qkv.weight, std=self.qkv.in_channels**-0.5)
        nn.init.trunc_normal_(self.out.weight, std=self.out.in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, H, W, N, fields). Raises ValueError for an image smaller than the radius."""
        check_window_size(self.radius, x.shape[2], x.shape[3])
        amplitudes, vectors, phases = self.spatial()
        heads = (self.num_heads, -1)
        # Unit vectors through the layer give its weight, including that of an adapter around it.
        unit = x.new_ones(x.shape[1]).diag()[:, :, None, None]
        q_weight, k_weight, v_weight = self.qkv(unit).transpose(0, 1).chunk(3)
        q = F.conv2d(x, q_weight, self.q_bias).flatten(2).unflatten(1, heads) * self.scale
        k = k_weight.flatten(1).unflatten(0, heads)
        amplitudes = amplitudes.unflatten(-1, heads).permute(1, 2, 0)
        means = lifting_attention(x, q, k, amplitudes, vectors, phases, self.radius)
        values = torch.einsum("benct,edc->btned", means, v_weight.flatten(1).unflatten(0, heads)).flatten(3)
        return self.out(values).unflatten(1, x.shape[2:])
