"""Neighbourhood attention by PyTorch's flex attention, one kernel that passes over blocks of keys that no query sees.

For GPUs, where `timm.layers.set_fused_attn(True, experimental=True)` or TIMM_FUSED_ATTN=2 asks for it before the model is
made. It has been compared with `attend_nearby` on CPUs only, and its speed was never seen.
"""

import functools
import math
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from timm.layers import register_notrace_function
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128
"""Queries, and keys, that the kernel takes or passes over at a time."""


@functools.cache
def compiled() -> Any:
    """The kernel; uncompiled, flex attention computes all pairs."""
    return torch.compile(flex_attention)


@torch.fx.wrap
@register_notrace_function
@torch.jit.ignore
def attend_nearby_fused(q: Tensor, k: Tensor, v: Tensor, radius: int, shape: str, circular: bool) -> Tensor:
    """`attend_nearby`, whose checks are the caller's: the same arguments, the same result."""
    *_, height, width, tokens, dim = q.shape
    # Heads of 16 numbers or a multiple, of which tensor cores take no less.
    heads = (F.pad(x.flatten(2, 4), (0, -dim % 16)) for x in (q, k, v))
    mask = block_mask(height, width, tokens, radius, shape, circular, q.device)
    attend: Any = flex_attention if torch.compiler.is_compiling() else compiled()
    return attend(*heads, block_mask=mask, scale=1 / math.sqrt(dim))[..., :dim].reshape(q.shape)


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
