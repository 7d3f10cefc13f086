"""Neighbourhoods of attention."""

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from gcsa._utils.errors import UserError
from gcsa._utils.validation import is_int

SHAPES = ("square", "disc")
BLOCK = 128
"""Queries, and keys, that the kernel takes or passes over at a time."""


def check_radius(radius: int | str | None) -> int | None:
    """The radius of a neighbourhood in positions; None for "all" or None, which stand for all positions.

    Raises ValueError for anything else.
    """
    if radius is None or radius == "all":
        return None
    if not is_int(radius, 0):
        raise UserError(f"radius={radius!r} must be a whole number of positions, 0 or more, or 'all' for all positions")
    return int(radius)


@torch.fx.wrap
@register_notrace_function
def check_window_size(radius: int, height: int, width: int, circular: bool = False) -> None:
    """Raises ValueError for a neighbourhood larger than the map, which would cost more than all positions do, or, where it is
    `circular`, for one that meets itself."""
    if circular and 2 * radius >= min(height, width):
        raise UserError(f"radius {radius} wraps round a {height} x {width} map more than once: use 'all' there")
    if radius > max(height, width):
        raise UserError(
            f"radius {radius} is larger than a map of {height} x {width} positions: use at most "
            f"{max(height, width) - 1}, or 'all' for all positions"
        )


def grid(rows: int, columns: int, like: Tensor) -> Tensor:
    """Positions (rows * columns, 2), centred; x to the right, y upwards."""
    y = (rows - 1) / 2 - torch.arange(rows, dtype=like.dtype, device=like.device)
    x = torch.arange(columns, dtype=like.dtype, device=like.device) - (columns - 1) / 2
    return torch.stack([x[None, :].expand(rows, columns), y[:, None].expand(rows, columns)], -1).flatten(0, 1)


def window_partition(x: Tensor, rows: int, columns: int, border: int, bottom: int, right: int) -> Tensor:
    """(B, H, W, ...), padded, to tiles of rows x columns with a border: (B, tiles, positions of each, ...)."""
    rest = x.shape[3:]
    x = F.pad(x.flatten(3), (0, 0, border, border + right, border, border + bottom))
    x = x.unfold(1, rows + 2 * border, rows).unfold(2, columns + 2 * border, columns)
    return x.permute(0, 1, 2, 4, 5, 3).flatten(3, 4).flatten(1, 2).unflatten(3, rest)


def window_reverse(x: Tensor, rows: int, columns: int, height: int, width: int) -> Tensor:
    """The inverse of `window_partition` without a border: (B, tiles, rows * columns, ...) to (B, height, width, ...)."""
    x = x.unflatten(2, (rows, columns)).unflatten(1, (-1, (width + columns - 1) // columns))
    x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)
    # As in `attend_nearby`: not by a slice, which torch.export would hold to one layout.
    return F.pad(x.flatten(3), (0, 0, 0, width - x.shape[2], 0, height - x.shape[1])).unflatten(3, x.shape[3:])


def closed(inside: Tensor) -> Tensor:
    """Logits to add: 0 where `inside` is 1, and where it is 0 so low that nothing is seen.

    Finite, because the rows that fill up a tile see nothing at all.
    """
    return (inside - 1) * 1e4


def attention_bias(height: int, width: int, tile: int, radius: int, bottom: int, right: int, like: Tensor) -> Tensor:
    """Whether the J positions of a tile with its border are on the map and near each of Q queries: (tiles, Q, J)."""
    inside = torch.ones(1, height, width, 1, dtype=like.dtype, device=like.device)
    inside = window_partition(inside, tile, tile, radius, bottom, right).squeeze(0).transpose(1, 2)
    q, k = grid(tile, tile, like), grid(tile + 2 * radius, tile + 2 * radius, like)
    near = (q[:, None] - k).abs().amax(-1) < radius + 0.5
    return closed(inside * near)


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


def block_mask(
    height: int, width: int, tokens: int, radius: int, shape: str, circular: bool, device: torch.device
) -> BlockMask:
    """Which of the height * width * tokens keys each query sees, both row by row."""

    def offset(query: Tensor, key: Tensor, side: int) -> Tensor:
        distance = (query - key).abs()
        return torch.minimum(distance, side - distance) if circular else distance

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query, key = query // tokens, key // tokens
        dy = offset(query // width, key // width, height)
        dx = offset(query % width, key % width, width)
        return dy * dy + dx * dx <= radius * radius if shape == "disc" else torch.maximum(dy, dx) <= radius

    size = height * width * tokens
    start = torch.arange(0, size, BLOCK, device=device)
    first, last = start // tokens, (start + BLOCK - 1).clamp(max=size - 1) // tokens
    in_a_row = first // width == last // width
    left, right = torch.where(in_a_row, first % width, 0), torch.where(in_a_row, last % width, width - 1)
    apart = _gaps(first // width, last // width, height, circular).maximum(_gaps(left, right, width, circular))
    seen = apart <= radius
    return BlockMask.from_kv_blocks(
        seen.sum(1, dtype=torch.int32)[None, None],
        seen.int().argsort(dim=1, descending=True, stable=True).int()[None, None],  # those that are seen come first
        BLOCK_SIZE=BLOCK,
        mask_mod=near,
        seq_lengths=(size, size),
    )


def _gaps(low: Tensor, high: Tensor, side: int, circular: bool) -> Tensor:
    """How many positions lie from each range low..high to each other, at least: (ranges, ranges)."""
    after = low[None, :] - high[:, None]
    gaps = after.maximum(after.T)
    if circular:  # and the other way round
        gaps = gaps.minimum(side + after).minimum(side + after.T)
    return gaps.clamp(min=0)
