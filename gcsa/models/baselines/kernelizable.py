"""Positions in kernelizable attention (Horn et al., Translational Equivariance in Kernelizable Attention, section 2).

FAVOR+ attention (`attend_linear`) is blind to positions. `absolute` adds sines and cosines of the position to the
input once, in front of the first layer, and its layers are those of `none`. `relative_s1` (strategy 1) joins positional
queries and keys to those of the content, such that their inner product depends on differences only (Lemma 1), which
random features then keep in expectation. `relative_s2` (strategy 2) gives half of the heads to <q_i, w_d>, with one
learned vector w_d for each clipped distance d = min(|dy| + |dx|, k) (eq. 4), at O(L k^2); it depends on differences
for every draw. The document's sums are normalised here as its eq. 1 is, and there are k + 1 vectors, for the distance
of a token to itself is 0.
"""

# Annotations stay objects here (no `from __future__`), because torch.fx copies them into code that TorchScript reads.
import zlib
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_divisor, check_int
from gcsa.layers.favor import attend_linear, orthogonal_features, positive_features
from gcsa.layers.layout import from_tokens, to_tokens


def geometric_omegas(width: int) -> Tensor:
    """The m = width / 2 scales 10000^(-i / m) of conventional encodings with `width` numbers.

    Raises ValueError for an odd width.
    """
    check_int("width", width, 0)
    if width < 2 or width % 2 != 0:
        raise UserError(
            f"the positional width must be even, a sine and a cosine for each scale, not {width}: "
            f"use {max(width // 2 * 2, 2)} or {max(width // 2 * 2, 2) + 2}",
            "width.odd",
        )
    return torch.tensor([10000 ** (-2 * i / width) for i in range(width // 2)])


def sin_cos(z: Tensor, omegas: Tensor) -> Tensor:
    """phi(z) = [sin(w_1 z), cos(w_1 z), ..., sin(w_m z), cos(w_m z)]: positions (...) to (..., 2 m)."""
    angles = z.unsqueeze(-1) * omegas
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def rotate_pairs(u: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """u W_q* with W_q* block-diagonal of [[a, b], [-b, a]]: u (..., 2 m), alpha and beta (..., m)."""
    sin, cos = u.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([alpha * sin - beta * cos, beta * sin + alpha * cos], -1).flatten(-2)


def join_axes(rows: Tensor, columns: Tensor) -> Tensor:
    """Features of rows (..., H, D) and columns (..., W, D) side by side at each position: (..., H, W, 2 D)."""
    shape = rows.shape[:-1] + columns.shape[-2:]
    return torch.cat([rows.unsqueeze(-2).expand(shape), columns.unsqueeze(-3).expand(shape)], -1)


@torch.fx.wrap
@register_notrace_function
def add_positions(x: Tensor, omegas: Tensor) -> Tensor:
    """x (B, H, W, C) plus the absolute encoding: rows in its first half, columns in its second; `omegas` (C / 4)."""
    rows, columns = (torch.arange(size, device=x.device, dtype=omegas.dtype) for size in (x.shape[1], x.shape[2]))
    return x + join_axes(sin_cos(rows, omegas), sin_cos(columns, omegas)).to(x.dtype)


@torch.fx.wrap
@register_notrace_function
def join_positions(q: Tensor, k: Tensor, omegas: Tensor, alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Strategy 1: concat(Q_c, Q_p) and concat(K_c, K_p) of contents q, k (B, heads, H, W, 1, D).

    Q_p = u W_q* and K_p = u, with `omegas` (2, m) of the two axes, `alpha` and `beta` (heads, 2, 1, m).
    """
    rows, columns = (torch.arange(size, device=q.device, dtype=omegas.dtype) for size in (q.shape[2], q.shape[3]))
    u, v = sin_cos(rows, omegas[0]), sin_cos(columns, omegas[1])
    q_p = join_axes(rotate_pairs(u, alpha[:, 0], beta[:, 0]), rotate_pairs(v, alpha[:, 1], beta[:, 1]))
    q_p, k_p = q_p.unsqueeze(3), join_axes(u, v).unsqueeze(2)
    q, k = (torch.cat([c, p.to(c.dtype).expand(c.shape[:-1] + p.shape[-1:])], -1) for c, p in ((q, q_p), (k, k_p)))
    return q, k


def move_both_ways(x: Tensor, dim: int, by: int, border: int) -> Tensor:
    """x moved by `by` one way plus x moved the other way (by 0: x once), with its `border` along `dim` cut off."""
    size = x.shape[dim] - 2 * border
    moved = x.narrow(dim, border - by, size)
    return moved if by == 0 else moved + x.narrow(dim, border + by, size)


def sum_by_distance(v: Tensor, clip: int) -> Tensor:
    """Sums of v (B, H, W) over the positions at each distance |dy| + |dx| = 0, ..., clip - 1 from (y, x), and over all
    farther ones: (B, clip + 1, H, W), at O(clip^2) a position."""
    border = clip - 1
    v = F.pad(v, [border, border, border, border])
    columns = [move_both_ways(v, 2, dx, border) for dx in range(clip)]
    sums = []
    for distance in range(clip):
        ring = move_both_ways(columns[distance], 1, 0, border)
        for dy in range(1, distance + 1):
            ring = ring + move_both_ways(columns[distance - dy], 1, dy, border)
        sums.append(ring)
    near = torch.stack(sums, 1)
    far = v.sum((1, 2), keepdim=True) - near.sum(1)
    return torch.cat([near, far.unsqueeze(1)], 1)


@torch.fx.wrap
@register_notrace_function
def attend_distances(q: Tensor, v: Tensor, w: Tensor, projection: Tensor) -> Tensor:
    """Strategy 2's positional heads: softmax over j of <q_i, w_d(i, j)> / sqrt(D), estimated by FAVOR+, times v_j.

    q, v (B, heads, H, W, 1, D), `w` (k + 1, D), d = min(|dy| + |dx|, k). Far keys share w_k, so their values are summed
    up once for the whole map and corrected by the k^2 near ones. Computed in float32 or wider.
    """
    if torch.jit.is_scripting() or q.is_meta:  # neither knows autocast
        return _attend_distances(q, v, w, projection)
    with torch.autocast(q.device.type, enabled=False):
        return _attend_distances(q, v, w, projection)


def _attend_distances(q: Tensor, v: Tensor, w: Tensor, projection: Tensor) -> Tensor:
    dtype, height, width = q.dtype, q.shape[2], q.shape[3]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    q_features, w_features = positive_features(q.squeeze(4).to(wide), w.to(wide), projection.to(wide))
    scores = (q_features @ w_features.T).permute(0, 1, 4, 2, 3).unsqueeze(2)  # (B, heads, 1, k + 1, H, W)
    values = v.squeeze(4).to(wide).permute(0, 1, 4, 2, 3)
    sums = sum_by_distance(values.reshape(-1, height, width), len(w) - 1).unflatten(0, values.shape[:3])
    counts = sum_by_distance(values.new_ones(1, height, width), len(w) - 1)
    out = (scores * sums).sum(3) / (scores * counts).sum(3).clamp_min(1e-30)
    return out.permute(0, 1, 3, 4, 2).unsqueeze(4).to(dtype)


@torch.library.custom_op("gcsa::redraw", mutates_args=())
def redraw(projections: list[Tensor], steps: Tensor, interval: int) -> list[Tensor]:
    """`projections`, or, after each `interval` of `steps`, new random features.

    They follow from the old ones and from `steps` alone, so that all processes that share these, and a resumed run,
    draw the same, whatever their random states. Always new tensors, for old graphs may hold the old ones. An operator
    of its own, because torch.compile cannot look into `steps` for the condition.
    """
    if int(steps) % interval != 0:
        return [projection.clone() for projection in projections]
    seed = zlib.crc32(projections[0].detach().float().cpu().numpy().tobytes()) + int(steps)
    generator = torch.Generator().manual_seed(seed)
    return [orthogonal_features(len(p), p.shape[1], generator).to(p) for p in projections]


@redraw.register_fake
def _(projections: list[Tensor], steps: Tensor, interval: int) -> list[Tensor]:
    return [torch.empty_like(projection) for projection in projections]


class KernelizableAttention(nn.Module):
    """FAVOR+ self-attention that knows no positions, on maps (B, H, W, C): the strategies `none` and `absolute`.

    Args:
        dim: channels C.
        num_heads: must divide `dim`.
        num_random_features: m; a buffer, for which `redraw` gives others.
        positional: numbers that a subclass adds to each query and key.

    Raises:
        ValueError: heads that do not divide dim, fewer than one feature.
    """

    projection: Tensor

    def __init__(self, dim: int, num_heads: int, num_random_features: int = 128, positional: int = 0) -> None:
        super().__init__()
        check_divisor("num_heads", num_heads, "dim", dim)
        check_int("num_random_features", num_random_features)
        self.num_heads = num_heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("projection", orthogonal_features(num_random_features, dim // num_heads + positional))

    def tokens(self, x: Tensor, heads: int) -> Tensor:
        """(B, H, W, C) to (B, heads, H, W, 1, C / heads)."""
        return to_tokens(x.unsqueeze(3), heads, False)

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, H, W, C) to queries, keys and values of the content, (B, heads, H, W, 1, C / heads) each."""
        heads = self.num_heads
        return self.tokens(self.q(x), heads), self.tokens(self.k(x), heads), self.tokens(self.v(x), heads)

    def attend(self, x: Tensor) -> Tensor:
        """(B, H, W, C) to (B, heads, H, W, 1, C / heads)."""
        q, k, v = self.qkv(x)
        return attend_linear(q, k, v, self.projection)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) to the same shape."""
        return self.out(from_tokens(self.attend(x), 1).squeeze(3))


class RelativeS1Attention(KernelizableAttention):
    """Strategy 1: `width` sines and cosines for each axis, of width / 2 learned scales, beside the content.

    Each head has its own W_q* (Lemma 1, eq. 3), which begins as random turns (ours), W_k* is the identity, and values
    hold no position. Raises ValueError for an odd width.
    """

    def __init__(self, dim: int, num_heads: int, num_random_features: int = 128, width: int = 8) -> None:
        omegas = geometric_omegas(width)
        super().__init__(dim, num_heads, num_random_features, 2 * width)
        self.omegas = nn.Parameter(omegas.repeat(2, 1))
        self.alpha = nn.Parameter(torch.randn(num_heads, 2, 1, width // 2))
        self.beta = nn.Parameter(torch.randn(num_heads, 2, 1, width // 2))

    def attend(self, x: Tensor) -> Tensor:
        """(B, H, W, C) to (B, heads, H, W, 1, C / heads)."""
        q, k, v = self.qkv(x)
        q, k = join_positions(q, k, self.omegas, self.alpha, self.beta)
        return attend_linear(q, k, v, self.projection)


class RelativeS2Attention(KernelizableAttention):
    """Strategy 2: the first half of the heads attends to content, the second to distances, clipped at `clip`.

    The second half has no keys; its vectors w_0, ..., w_clip are shared by its heads, as in Shaw et al. (2018). Raises
    ValueError for a clip below 1 and an odd number of heads.
    """

    def __init__(self, dim: int, num_heads: int, num_random_features: int = 128, clip: int = 6) -> None:
        check_int("clip", clip)
        check_int("num_heads", num_heads)
        if num_heads % 2 != 0:
            raise UserError(
                f"relative_s2 divides the heads in two halves: num_heads={num_heads} must be even", "num_heads.odd"
            )
        super().__init__(dim, num_heads, num_random_features)
        self.k = nn.Linear(dim, dim // 2, bias=False)
        self.w = nn.Parameter(torch.randn(clip + 1, dim // num_heads))

    def attend(self, x: Tensor) -> Tensor:
        """(B, H, W, C) to (B, heads, H, W, 1, C / heads)."""
        q, v = self.tokens(self.q(x), self.num_heads), self.tokens(self.v(x), self.num_heads)
        half = self.num_heads // 2
        content = attend_linear(q[:, :half], self.tokens(self.k(x), half), v[:, :half], self.projection)
        return torch.cat([content, attend_distances(q[:, half:], v[:, half:], self.w, self.projection)], 1)


POSITIONS: dict[str, type[KernelizableAttention]] = {
    "none": KernelizableAttention,
    "absolute": KernelizableAttention,
    "relative_s1": RelativeS1Attention,
    "relative_s2": RelativeS2Attention,
}


def make_attention(position: str, dim: int, num_heads: int, **options: Any) -> KernelizableAttention:
    """The attention layer of a positional strategy. Raises ValueError for an unknown strategy and wrong options."""
    if position not in POSITIONS:
        raise UserError(f"unknown position {position!r}: choose one of {', '.join(POSITIONS)}", "position")
    return POSITIONS[position](dim, num_heads, **options)
