"""FAVOR+: linear attention by positive random features."""

import math

import torch
import torch.fx
from timm.layers import register_notrace_function
from torch import Tensor, nn

from gcsa._utils.validation import check_int
from gcsa.layers.layout import from_tokens, to_tokens


def key_features(k: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """FAVOR+ features (..., S, m) of keys (..., S, D), with the random `projection` (m, D), and `highest` (..., 1, m).

    Each feature is divided by its maximum over the keys, exp(highest). The operations are in place, because memory traffic
    dominates their cost.
    """
    scale = k.shape[-1] ** -0.5
    features = (k @ (projection * scale**0.5).T).sub_(k.square().sum(-1, keepdim=True), alpha=scale / 2)
    highest = features.detach().amax(-2, keepdim=True)
    return features.sub_(highest).exp_(), highest


def query_features(q: Tensor, projection: Tensor, highest: Tensor) -> Tensor:
    """FAVOR+ features (..., T, m) of queries (..., T, D) that match those of `key_features`."""
    features = (q @ (projection * q.shape[-1] ** -0.25).T).add_(highest)  # the norm of q is a factor that cancels
    return features.sub_(features.detach().amax(-1, keepdim=True)).exp_()


def positive_features(q: Tensor, k: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """FAVOR+ features (..., m) of queries (..., T, D) and keys (..., S, D), with the random `projection` (m, D).

    Their products estimate exp(<q, k> / sqrt(D)) up to a factor for each query, which cancels between the numerator and the
    denominator of attention. Two stabilising maxima keep the denominator at 1 or more: of each feature over all keys, and of
    each query over its features.
    """
    k_features, highest = key_features(k, projection)
    return query_features(q, projection, highest), k_features


@torch.fx.wrap
@register_notrace_function
def attend_linear(q: Tensor, k: Tensor, v: Tensor, projection: Tensor) -> Tensor:
    """FAVOR+ estimate of `attend_everywhere` in O(tokens), with the random features `projection` (m, D).

    All tokens share the same random features, and the stabilising maximum runs over all keys, so the result is exactly
    equivariant. Keys and queries are processed in chunks, which bounds the memory of the features. Values may have another
    width than keys. The computation is in float32 or wider.
    """
    if torch.jit.is_scripting() or q.is_meta:  # neither knows autocast
        return _attend_linear(q, k, v, projection)
    with torch.autocast(q.device.type, enabled=False):
        return _attend_linear(q, k, v, projection)


def _attend_linear(q: Tensor, k: Tensor, v: Tensor, projection: Tensor, chunk: int = 1024) -> Tensor:
    # The features of `chunk` tokens fit into the cache of a core.
    shape, dtype = q.shape, q.dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    q, k, v = (x.flatten(2, 4).to(wide) for x in (q, k, v))
    projection = projection.to(wide)
    # Sums over keys, each feature divided by the exponential of its maximum so far.
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

    They are drawn on the CPU from `generator`, or from torch's global generator.
    """
    q, r = torch.linalg.qr(torch.randn(math.ceil(count / dim), dim, dim, generator=generator, device="cpu"))
    # QR fixes the signs of r. Unless q gets them back, it is not uniform and the estimate does not converge.
    blocks = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    norms = torch.randn(count, dim, generator=generator, device="cpu").norm(dim=1, keepdim=True)
    return (blocks.flatten(0, 1)[:count] * norms).contiguous()  # torch.export can only save contiguous tensors


class LinearAttention(nn.Module):
    """`GroupAttention` without a neighbourhood, by `num_random_features` positive random features, in O(tokens)."""

    projection: Tensor
    options = ("num_random_features",)

    def __init__(self, order: int, fields: int, num_heads: int, num_random_features: int = 64) -> None:
        super().__init__()
        check_int("num_random_features", num_random_features)
        self.order, self.num_heads = order, num_heads
        self.register_buffer("projection", torch.empty(num_random_features, fields // num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the random features."""
        self.projection.copy_(orthogonal_features(*self.projection.shape))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v (B, H, W, N, C) to (B, H, W, N, C)."""
        q, k, v = (to_tokens(x, self.num_heads, False) for x in (q, k, v))
        return from_tokens(attend_linear(q, k, v, self.projection), self.order)
