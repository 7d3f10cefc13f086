"""Three ways for positions and group elements to attend to each other, over plain queries, keys and values.

Each takes q (B, H, W, N, C) and k, v (B, H', W', N, C) and gives (B, H, W, N, C); nothing depends on where a token
stands, so each is equivariant as it is. `group` is poster eq. 3 and 4 as written, softmax over all (y, h);
`spatial` takes a position's whole fibre as one token (REViT's code); `linear` replaces the softmax kernel of
`group` by positive random features (FAVOR+: Choromanski et al. 2021, Rethinking Attention with Performers).
"""

import math

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function, use_fused_attn
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.layers.attention.flex import attend_nearby_fused
from gcsa.layers.checks import check_radius, check_reach, check_whole

SHAPES = ("square", "disc")


def to_tokens(x: Tensor, heads: int, fibre: bool) -> Tensor:
    """(B, H, W, N, C) to (B, heads, H, W, T, D): T = N tokens a position of D = C / heads numbers, or, where `fibre`
    is true, T = 1 token of D = N * C / heads."""
    x = x.unflatten(4, (heads, -1)).permute(0, 4, 1, 2, 3, 5)
    return x.flatten(4).unsqueeze(4) if fibre else x


def from_tokens(x: Tensor, order: int) -> Tensor:
    """The inverse of `to_tokens`, for either number of tokens a position."""
    b, heads, h, w, tokens, dim = x.shape
    return x.reshape(b, heads, h, w, order, tokens * dim // order).permute(0, 2, 3, 4, 1, 5).flatten(4)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, dim: int, mask: Tensor | None = None) -> Tensor:
    """`scaled_dot_product_attention` of (B, heads, T, D), of which `dim` numbers are not padding.

    In float32 where autocast on a CPU would train in bfloat16: its backward pass is up to six times as slow (ADR 29).
    """
    scale = 1 / math.sqrt(dim)
    if not torch.jit.is_scripting():  # noqa: SIM102 (TorchScript knows no autocast, and skips an if of this condition alone)
        if torch.is_grad_enabled() and torch.is_autocast_enabled("cpu"):
            wide = torch.promote_types(q.dtype, torch.float32)
            q, k, v, mask = q.to(wide), k.to(wide), v.to(wide), None if mask is None else mask.to(wide)
            with torch.autocast("cpu", enabled=False):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


@torch.fx.wrap
@register_notrace_function
def attend_everywhere(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax attention of every token to every token, on tensors from `to_tokens`.

    Heads are padded to a multiple of 8 numbers, which the fused kernels of GPUs need, and to 16 at least, for that of
    CPUs is slower with 8 (ADR 13).
    """
    shape, dim = q.shape, q.shape[-1]
    q, k, v = q.flatten(2, 4), k.flatten(2, 4), v.flatten(2, 4)
    more = max(dim + -dim % 8, 16) - dim
    if more == 0:
        return softmax_attention(q, k, v, dim).reshape(shape)
    q, k, v = (F.pad(x, (0, more)) for x in (q, k, v))
    out = softmax_attention(q, k, v, dim)
    return out[:, :, :, :dim].reshape(shape)


def neighbourhood(tile: int, radius: int, shape: str, tokens: int, device: torch.device) -> Tensor:
    """Which of the keys of a tile with a border of `radius` each query of the tile sees: bool (1, 1, Q, K)."""
    query = torch.arange(tile, device=device)
    offset = torch.arange(tile + 2 * radius, device=device)[None, :] - query[:, None] - radius
    dy, dx = offset[:, None, :, None], offset[None, :, None, :]
    if shape == "disc":
        near = dy * dy + dx * dx <= radius * radius
    else:
        near = torch.maximum(dy.abs(), dx.abs()) <= radius
    near = near.reshape(tile * tile, 1, -1, 1).expand(-1, tokens, -1, tokens)
    return near.reshape(1, 1, tile * tile * tokens, -1)


@torch.fx.wrap
@register_notrace_function
def attend_nearby(q: Tensor, k: Tensor, v: Tensor, radius: int, shape: str, circular: bool) -> Tensor:
    """Softmax attention to the tokens at most `radius` positions away (square or disc), on tensors from `to_tokens`.

    The map is cut into tiles of queries, each with the keys of the tile and a border of `radius`. A mask leaves each
    query its own neighbourhood, so the result does not depend on the tiles, and memory grows linearly with the map.
    Positions outside the map are excluded, by a mask of each tile, or wrap round where `circular` is true.

    Raises ValueError for a radius larger than the map or, where `circular` is true, half of it.
    """
    b, heads, height, width, tokens, dim = q.shape
    check_reach(radius, height, width, circular)
    # Smaller tiles have more border to compute, larger ones more masked pairs.
    tile = min(max(2 * radius, 4), 16)
    bottom, right = -height % tile, -width % tile
    more = -dim % 8  # which the fused kernels of GPUs need
    q = F.pad(q, (0, more, 0, 0, 0, right, 0, bottom))
    k, v = (_border(x, radius, bottom, right, circular, more) for x in (k, v))
    q_tiles = _tiles(q, tile, tile)
    k_tiles, v_tiles = (_tiles(x, tile + 2 * radius, tile) for x in (k, v))
    mask = torch.where(neighbourhood(tile, radius, shape, tokens, q.device), 0.0, -math.inf).to(q.dtype)
    # Rows in memory of a multiple of 8 numbers, to which torch would otherwise copy them for the kernel.
    keys = mask.shape[3]
    mask = F.pad(mask, (0, -keys % 8))
    if not circular:
        mask = mask + F.pad(_outside(height, width, radius, bottom, right, tile, tokens, q), (0, -keys % 8))
    mask = mask[:, :, :, :keys]
    out = softmax_attention(q_tiles, k_tiles, v_tiles, dim, mask)
    rows, columns = (height + bottom) // tile, (width + right) // tile
    out = out.reshape(rows, columns, b, heads, tile, tile, tokens, dim + more).permute(2, 3, 0, 4, 1, 5, 6, 7)
    out = out.reshape(b, heads, rows * tile, columns * tile, tokens, dim + more)
    # Cut by padding, for a slice is laid out otherwise where it is the whole, and torch.export would hold to one case.
    return F.pad(out, (0, -more, 0, 0, 0, -right, 0, -bottom))


def _border(x: Tensor, radius: int, bottom: int, right: int, circular: bool, more: int) -> Tensor:
    """(B, heads, H, W, T, D) with `radius` positions around it, `bottom` and `right` to fill the last tiles, and
    `more` numbers a token."""
    if not circular:
        return F.pad(x, (0, more, 0, 0, radius, radius + right, radius, radius + bottom))
    rows = torch.arange(-radius, x.shape[2] + radius, device=x.device) % x.shape[2]
    columns = torch.arange(-radius, x.shape[3] + radius, device=x.device) % x.shape[3]
    return F.pad(x.index_select(2, rows).index_select(3, columns), (0, more, 0, 0, 0, right, 0, bottom))


def _outside(
    height: int, width: int, radius: int, bottom: int, right: int, tile: int, tokens: int, like: Tensor
) -> Tensor:
    """Logits to add to those of each tile's keys, (tiles, 1, 1, K): 0 on the map and very negative outside.

    Finite, because the queries that fill up the last tiles see nothing at all.
    """
    inside = torch.zeros(height, width, dtype=like.dtype, device=like.device)
    closed = F.pad(inside, (radius, radius + right, radius, radius + bottom), value=-1e4)
    return _tiles(
        closed[None, None, :, :, None, None].expand(-1, -1, -1, -1, tokens, -1), tile + 2 * radius, tile
    ).transpose(2, 3)


def _tiles(x: Tensor, size: int, step: int) -> Tensor:
    """(B, heads, H, W, T, D) to (tiles, B * heads, size * size * T, D).

    Tiles stand where a batch does, so that a mask for each tile serves all images and heads.
    """
    tiles = x.unfold(2, size, step).unfold(3, size, step)  # (B, heads, rows, columns, T, D, size, size)
    b, heads, rows, columns, tokens, dim = tiles.shape[:6]
    return tiles.permute(2, 3, 0, 1, 6, 7, 4, 5).reshape(rows * columns, b * heads, size * size * tokens, dim)


def key_features(k: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """FAVOR+ features (..., S, m) of keys (..., S, D), with the random `projection` (m, D), each over its maximum
    exp(highest) over the keys; and `highest` (..., 1, m). In place, for memory traffic is most of what features cost."""
    scale = k.shape[-1] ** -0.5
    features = (k @ (projection * scale**0.5).T).sub_(k.square().sum(-1, keepdim=True), alpha=scale / 2)
    highest = features.detach().amax(-2, keepdim=True)
    return features.sub_(highest).exp_(), highest


def query_features(q: Tensor, projection: Tensor, highest: Tensor) -> Tensor:
    """The features (..., T, m) of queries (..., T, D) that go with those of `key_features`."""
    features = (q @ (projection * q.shape[-1] ** -0.25).T).add_(highest)  # the norm of q is a factor, which cancels
    return features.sub_(features.detach().amax(-1, keepdim=True)).exp_()


def positive_features(q: Tensor, k: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """FAVOR+ features (..., m) of queries (..., T, D) and keys (..., S, D), with the random `projection` (m, D).

    Their products estimate exp(<q, k> / sqrt(D)) up to a factor for each query, which cancels between numerator and
    denominator of attention. The stabilising maxima, of each feature over all keys and then of each query over the
    features, keep the denominator at 1 or more.
    """
    k_features, highest = key_features(k, projection)
    return query_features(q, projection, highest), k_features


@torch.fx.wrap
@register_notrace_function
def attend_linear(q: Tensor, k: Tensor, v: Tensor, projection: Tensor) -> Tensor:
    """FAVOR+ estimate of `attend_everywhere` in O(tokens), with the random features `projection` (m, D).

    Every token has the same features, and the stabilising maximum over keys runs over all of them, which keeps
    the result exactly equivariant. Keys and queries are taken a chunk at a time, so that few features are held at
    once. Values may have another width than keys. Computed in float32 or wider.
    """
    if torch.jit.is_scripting() or q.is_meta:  # neither knows autocast
        return _attend_linear(q, k, v, projection)
    with torch.autocast(q.device.type, enabled=False):
        return _attend_linear(q, k, v, projection)


def _attend_linear(q: Tensor, k: Tensor, v: Tensor, projection: Tensor, chunk: int = 1024) -> Tensor:
    # So many tokens' features stay in a core's cache.
    shape, dtype = q.shape, q.dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    q, k, v = (x.flatten(2, 4).to(wide) for x in (q, k, v))
    projection = projection.to(wide)
    # Sums over keys, of each feature over the exponential of its maximum so far.
    sums, total, highest = q.new_zeros(1), q.new_zeros(1), q.new_full((1,), -math.inf)
    for keys, values in zip(k.split(chunk, 2), v.split(chunk, 2)):  # noqa: B905 (TorchScript knows no strict)
        features, top = key_features(keys, projection)
        before, highest = highest, torch.maximum(highest, top)
        old, new = (before - highest).exp().transpose(2, 3), (top - highest).exp().transpose(2, 3)
        sums = old * sums + new * (features.transpose(2, 3) @ values)
        total = old * total + new * features.sum(2).unsqueeze(3)
    out = []
    for queries in q.split(chunk, 2):
        features = query_features(queries, projection, highest)
        out.append((features @ sums) / (features @ total))
    return torch.cat(out, 2).unflatten(2, shape[2:5]).to(dtype)


def orthogonal_features(count: int, dim: int, generator: torch.Generator | None = None) -> Tensor:
    """Random features (count, dim): Gaussian rows, orthogonal within each block of `dim` rows.

    Drawn on the CPU from `generator`, or from torch's global one.
    """
    q, r = torch.linalg.qr(torch.randn(math.ceil(count / dim), dim, dim, generator=generator, device="cpu"))
    # QR fixes the signs of r; without giving them back, q is not uniform and the estimate does not converge.
    blocks = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    norms = torch.randn(count, dim, generator=generator, device="cpu").norm(dim=1, keepdim=True)
    return (blocks.flatten(0, 1)[:count] * norms).contiguous()  # which torch.export can save


class GroupAttention(nn.Module):
    """Poster eq. 3 and 4: every (x, g) attends to every (y, h), or to those with y in a neighbourhood of x.

    `radius` in positions ("all": everywhere), `shape` "square" or "disc", `circular` for maps that wrap round. Raises
    ValueError for another radius or shape; in forward, for a map that the radius exceeds. Neighbourhoods on a GPU use flex
    attention where timm's experimental kernels were asked for (see `gcsa/layers/attention/flex.py`).
    """

    fused_attn: torch.jit.Final[bool]
    fibre = False
    options = ("radius", "shape")  # arguments that the models pass on

    def __init__(
        self,
        order: int,
        fields: int,
        heads: int,
        radius: int | str | None = "all",
        shape: str = "square",
        circular: bool = False,
    ) -> None:
        super().__init__()
        if shape not in SHAPES:
            raise UserError(f"unknown neighbourhood shape {shape!r}: choose {' or '.join(SHAPES)}")
        self.order, self.heads, self.radius, self.shape, self.circular = (
            order,
            heads,
            check_radius(radius),
            shape,
            circular,
        )
        self.whole_fibre = self.fibre
        self.fused_attn = use_fused_attn(experimental=True)

    @torch.jit.unused
    def check_map(self, height: int, width: int) -> None:
        """Raises ValueError for a map that the radius exceeds."""
        if self.radius is not None:
            check_reach(self.radius, height, width, self.circular)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v (B, H, W, N, C) to (B, H, W, N, C)."""
        q, k, v = (to_tokens(x, self.heads, self.whole_fibre) for x in (q, k, v))
        if self.radius is None:
            out = attend_everywhere(q, k, v)
        elif self.fused_attn and q.is_cuda:
            check_reach(self.radius, q.shape[2], q.shape[3], self.circular)
            out = attend_nearby_fused(q, k, v, self.radius, self.shape, self.circular)
        else:
            out = attend_nearby(q, k, v, self.radius, self.shape, self.circular)
        return from_tokens(out, self.order)


class SpatialAttention(GroupAttention):
    """Positions attend to positions; the inner product runs over channels and group elements together."""

    fibre = True


class LinearAttention(nn.Module):
    """`GroupAttention` without a neighbourhood, by `features` positive random features, in O(tokens)."""

    projection: Tensor
    options = ("features",)

    def __init__(self, order: int, fields: int, heads: int, features: int = 64) -> None:
        super().__init__()
        check_whole(features=features)
        self.order, self.heads = order, heads
        self.register_buffer("projection", orthogonal_features(features, fields // heads))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v (B, H, W, N, C) to (B, H, W, N, C)."""
        q, k, v = (to_tokens(x, self.heads, False) for x in (q, k, v))
        return from_tokens(attend_linear(q, k, v, self.projection), self.order)


ATTENTION: dict[str, type[GroupAttention] | type[LinearAttention]] = {
    "group": GroupAttention,
    "spatial": SpatialAttention,
    "linear": LinearAttention,
}
