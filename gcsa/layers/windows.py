"""Neighbourhoods of attention (a square or a disc, with a radius in positions), and windows of queries that share their keys.

Rotations by 90 degrees and reflections map a square and a disc onto themselves, but not windows that start at the top left. So
each window has a border of the radius, and a bias restricts each query to its own neighbourhood. The result then does not
depend on the windows.
"""

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from gcsa._utils.errors import UserError
from gcsa._utils.validation import is_int
from gcsa.layers.layout import pixel_coordinates

SHAPES = ("square", "disc")
BLOCK = 128
"""Queries and keys in a block that flex attention computes or skips."""


def check_radius(radius: int | str | None) -> int | None:
    """The radius of a neighbourhood in positions; None if `radius` is "all" or None, for all positions.

    Raises UserError for anything else.
    """
    if radius is None or radius == "all":
        return None
    if not is_int(radius, 0):
        raise UserError(
            f"radius={radius!r} must be a whole number of positions, 0 or more, or 'all' for all positions", "radius"
        )
    return int(radius)


@torch.fx.wrap
@register_notrace_function
def check_window_size(radius: int, height: int, width: int, circular: bool = False) -> None:
    """Raises UserError for a neighbourhood larger than the map, which would cost more than all positions, and for a `circular`
    one that overlaps itself."""
    if circular and 2 * radius >= min(height, width):
        raise UserError(
            f"radius {radius} wraps round a {height} x {width} map more than once: use 'all' there", "radius.wraps"
        )
    if radius > max(height, width):
        raise UserError(
            f"radius {radius} is larger than a map of {height} x {width} positions: use at most "
            f"{max(height, width) - 1}, or 'all' for all positions",
            "radius.too_large",
        )


def window_partition(
    x: Tensor, rows: int, columns: int, border: int = 0, circular: bool = False, dim: int = 1
) -> Tensor:
    """Maps (..., H, W, ...), H being axis `dim`, to windows (..., windows, positions, ...) of rows x columns positions and a
    border around them.

    Zeros fill up the last windows. Outside the map the border holds zeros or, if `circular`, the opposite side of the map.
    """
    height, width = x.shape[dim], x.shape[dim + 1]
    bottom, right = -height % rows, -width % columns
    inner = border
    if circular:
        x = x.index_select(dim, torch.arange(-border, height + border, device=x.device) % height)
        x = x.index_select(dim + 1, torch.arange(-border, width + border, device=x.device) % width)
        inner = 0
    x = F.pad(x, [0] * (2 * (x.ndim - dim - 2)) + [inner, inner + right, inner, inner + bottom])
    if border == 0:  # a view in every format
        x = x.unflatten(dim + 1, (-1, columns)).unflatten(dim, (-1, rows)).transpose(dim + 1, dim + 2)
    else:
        x = x.unfold(dim, rows + 2 * border, rows).unfold(dim + 1, columns + 2 * border, columns)
        x = x.movedim(-2, dim + 2).movedim(-1, dim + 3)
    return x.flatten(dim + 2, dim + 3).flatten(dim, dim + 1)


def window_reverse(x: Tensor, rows: int, columns: int, height: int, width: int, dim: int = 1) -> Tensor:
    """The inverse of `window_partition` without a border: (..., windows, rows * columns, ...) to (..., height, width, ...)."""
    x = x.unflatten(dim + 1, (rows, columns)).unflatten(dim, (-1, (width + columns - 1) // columns))
    x = x.transpose(dim + 1, dim + 2).flatten(dim + 2, dim + 3).flatten(dim, dim + 1)
    # Padding instead of a slice: a slice of the whole has another memory layout, and torch.export would specialise on that case.
    return F.pad(x, [0] * (2 * (x.ndim - dim - 2)) + [0, width - x.shape[dim + 1], 0, height - x.shape[dim]])


def is_near(dy: Tensor, dx: Tensor, radius: int, shape: str) -> Tensor:
    """Whether offsets are within the square or the disc of `radius`."""
    if shape == "disc":
        return dy * dy + dx * dx <= radius * radius
    return torch.maximum(dy.abs(), dx.abs()) <= radius


def attention_bias(
    height: int, width: int, window: int, radius: int, like: Tensor, shape: str = "square", circular: bool = False
) -> Tensor:
    """Logits to add to those of the Q positions of each window and the J positions of the window with its border.

    The shape is (windows, Q, J), or (1, Q, J) if `circular`, since then all windows are alike. The logits are 0 for keys on the map
    and in the neighbourhood of the query, and else low enough to mask the key. They are finite, because queries that fill up the
    last windows have no key at all.
    """
    queries = pixel_coordinates(window, window, like).flatten(0, 1)
    keys = pixel_coordinates(window + 2 * radius, window + 2 * radius, like).flatten(0, 1)
    dx, dy = (keys - queries[:, None]).unbind(-1)
    seen = is_near(dy, dx, radius, shape)[None]
    if not circular:
        inside = torch.ones(1, height, width, dtype=like.dtype, device=like.device)
        seen = seen & (window_partition(inside, window, window, radius)[0] > 0)[:, None]
    return torch.where(seen, 0.0, -1e4).to(like.dtype)


def dropout_factors(offsets: Tensor, reach: int, samples: int, p: float, like: Tensor) -> Tensor:
    """Factors (samples, Q, J) of attention weights, 0 with probability p and else 1 / (1 - p), for the `offsets` (Q, J, 2) of
    keys from queries, at most `reach` positions along an axis.

    There is one draw for each sample and each distance of a key from a query. Shifts, rotations and reflections keep these
    distances, so each draw is equivariant. One draw for each weight would be equivariant only on average.
    """
    # The offset of a strided key is a multiple of a half.
    squared = (4 * offsets.square().sum(-1)).long()
    return F.dropout(like.new_ones([samples, 8 * reach * reach + 1]), p)[:, squared]


def block_mask(
    height: int, width: int, tokens: int, radius: int, shape: str, circular: bool, device: torch.device
) -> BlockMask:
    """The keys that each query sees, for flex attention, with height * width * tokens queries and as many keys, row by row."""

    def offset(query: Tensor, key: Tensor, side: int) -> Tensor:
        distance = (query - key).abs()
        return torch.minimum(distance, side - distance) if circular else distance

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query, key = query // tokens, key // tokens
        dy = offset(query // width, key // width, height)
        dx = offset(query % width, key % width, width)
        return is_near(dy, dx, radius, shape)

    size = height * width * tokens
    start = torch.arange(0, size, BLOCK, device=device)
    first, last = start // tokens, (start + BLOCK - 1).clamp(max=size - 1) // tokens
    in_a_row = first // width == last // width
    left, right = torch.where(in_a_row, first % width, 0), torch.where(in_a_row, last % width, width - 1)
    apart = _gaps(first // width, last // width, height, circular).maximum(_gaps(left, right, width, circular))
    seen = apart <= radius
    return BlockMask.from_kv_blocks(
        seen.sum(1, dtype=torch.int32)[None, None],
        seen.int().argsort(dim=1, descending=True, stable=True).int()[None, None],  # blocks to compute come first
        BLOCK_SIZE=BLOCK,
        mask_mod=near,
        seq_lengths=(size, size),
    )


def _gaps(low: Tensor, high: Tensor, side: int, circular: bool) -> Tensor:
    """The smallest distance in positions between each two of the ranges low..high: (ranges, ranges)."""
    after = low[None, :] - high[:, None]
    gaps = after.maximum(after.T)
    if circular:  # also across the border
        gaps = gaps.minimum(side + after).minimum(side + after.T)
    return gaps.clamp(min=0)
