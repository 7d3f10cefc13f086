"""Views of feature maps (B, H, W, N, C) as NCHW and as attention tokens, and the coordinates of positions."""

import torch
from torch import Tensor


def to_nchw(x: Tensor) -> Tensor:
    """(B, H, W, N, C) to (B, N * C, H, W), group-major; a view."""
    return x.flatten(3).permute(0, 3, 1, 2)


def from_nchw(x: Tensor, order: int) -> Tensor:
    """(B, N * C, H, W) to (B, H, W, N, C); a view."""
    return x.permute(0, 2, 3, 1).unflatten(3, (order, -1))


def to_tokens(x: Tensor, num_heads: int, whole_fibre: bool) -> Tensor:
    """(B, H, W, N, C) to (B, heads, H, W, T, D): T = N tokens a position of D = C / heads numbers or, with `whole_fibre`, T = 1
    token of D = N * C / heads."""
    x = x.unflatten(4, (num_heads, -1)).permute(0, 4, 1, 2, 3, 5)
    return x.flatten(4).unsqueeze(4) if whole_fibre else x


def from_tokens(x: Tensor, order: int) -> Tensor:
    """The inverse of `to_tokens`, for either number of tokens a position."""
    b, heads, h, w, tokens, dim = x.shape
    return x.reshape(b, heads, h, w, order, tokens * dim // order).permute(0, 2, 3, 4, 1, 5).flatten(4)


def pixel_coordinates(height: int, width: int, like: Tensor) -> Tensor:
    """Coordinates (height, width, 2) in positions from the centre, x to the right and y upwards.

    They are on the device of `like`, in the wider of its dtype and float32, because bfloat16 represents integers only up to 256.
    """
    wide = torch.promote_types(like.dtype, torch.float32)
    y = (height - 1) / 2 - torch.arange(height, dtype=wide, device=like.device)
    x = torch.arange(width, dtype=wide, device=like.device) - (width - 1) / 2
    return torch.stack([x[None, :].expand(height, width), y[:, None].expand(height, width)], -1)
