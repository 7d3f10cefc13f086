"""The views of feature maps (B, H, W, N, C): as NCHW, and as tokens of attention."""

from torch import Tensor


def to_nchw(x: Tensor) -> Tensor:
    """(B, H, W, N, C) to (B, N * C, H, W), group-major; a view."""
    return x.flatten(3).permute(0, 3, 1, 2)


def from_nchw(x: Tensor, order: int) -> Tensor:
    """(B, N * C, H, W) to (B, H, W, N, C); a view."""
    return x.permute(0, 2, 3, 1).unflatten(3, (order, -1))


def to_tokens(x: Tensor, heads: int, fibre: bool) -> Tensor:
    """(B, H, W, N, C) to (B, heads, H, W, T, D): T = N tokens a position of D = C / heads numbers, or, where `fibre`
    is true, T = 1 token of D = N * C / heads."""
    x = x.unflatten(4, (heads, -1)).permute(0, 4, 1, 2, 3, 5)
    return x.flatten(4).unsqueeze(4) if fibre else x


def from_tokens(x: Tensor, order: int) -> Tensor:
    """The inverse of `to_tokens`, for either number of tokens a position."""
    b, heads, h, w, tokens, dim = x.shape
    return x.reshape(b, heads, h, w, order, tokens * dim // order).permute(0, 2, 3, 4, 1, 5).flatten(4)
