"""The same transformer built from escnn's modules (Weiler and Cesa 2019, arXiv:1911.08251), to compare with.

R2Conv for every convolution and escnn's field-major layout (B, C * N, H, W), with PyTorch's fused attention. Two
variants: with the norm written on NCHW tensors, and with the norm through a permutation, after which every tensor is
NCHW in shape and channels-last in memory. The second is the strongest that we could write with escnn's modules.
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

warnings.filterwarnings("ignore", message=".*py3nj.*")

from escnn import gspaces, nn as enn  # noqa: E402  (after the filter for its warning at import)

NCHW, CHANNELS_LAST = PEERS = ("escnn modules, NCHW", "escnn modules, channels last in memory")


class EscnnNorm(nn.Module):
    """Layer norm over the fibre (C, N) with one scale and shift for each field, in the field-major layout."""

    def __init__(self, fields: int, order: int, channels_last: bool) -> None:
        super().__init__()
        self.fields, self.order, self.channels_last = fields, order, channels_last
        self.weight = nn.Parameter(torch.ones(fields))
        self.bias = nn.Parameter(torch.zeros(fields))

    def forward(self, x: enn.GeometricTensor) -> enn.GeometricTensor:
        weight, bias = (p.repeat_interleave(self.order) for p in (self.weight, self.bias))
        if self.channels_last:
            normed = F.layer_norm(x.tensor.permute(0, 2, 3, 1), (self.fields * self.order,), weight, bias)
            return enn.GeometricTensor(normed.permute(0, 3, 1, 2), x.type)
        variance, mean = torch.var_mean(x.tensor, dim=1, keepdim=True, unbiased=False)
        normed = (x.tensor - mean) * torch.rsqrt(variance + 1e-5)
        return enn.GeometricTensor(normed * weight[:, None, None] + bias[:, None, None], x.type)


class EscnnBlock(nn.Module):
    """Pre-norm block: spatial attention with k x k group convolutions as queries, keys and values, and an MLP.

    Where `separable`, each field is convolved with itself and then mixed by 1 x 1; escnn has nothing more depthwise.
    """

    def __init__(
        self,
        fields: int,
        heads: int,
        order: int,
        kernel_size: int,
        mlp_ratio: float,
        channels_last: bool,
        separable: bool,
    ) -> None:
        super().__init__()
        space = gspaces.rot2dOnR2(order)
        self.fields, self.heads, self.order = fields, heads, order
        inner = enn.FieldType(space, fields * [space.regular_repr])
        hidden = enn.FieldType(space, int(fields * mlp_ratio) * [space.regular_repr])
        self.norm1, self.norm2 = (EscnnNorm(fields, order, channels_last) for _ in range(2))
        wide = dict(padding=kernel_size // 2, groups=fields if separable else 1, initialize=False)
        mix = [enn.R2Conv(inner, inner, 1, initialize=False) for _ in range(3 * separable)]
        self.q, self.k, self.v = (
            enn.SequentialModule(enn.R2Conv(inner, inner, kernel_size, **wide), *mix[i : i + 1]) for i in range(3)
        )
        self.out = enn.R2Conv(inner, inner, 1, initialize=False)
        self.fc1 = enn.R2Conv(inner, hidden, 1, initialize=False)
        self.fc2 = enn.R2Conv(hidden, inner, 1, initialize=False)
        for conv in self.modules():
            if isinstance(conv, enn.R2Conv):
                nn.init.normal_(conv.weights, std=0.1)

    def tokens(self, x: enn.GeometricTensor) -> Tensor:
        b, _, h, w = x.tensor.shape
        return x.tensor.reshape(b, self.heads, -1, h * w).transpose(2, 3)

    def forward(self, x: enn.GeometricTensor) -> enn.GeometricTensor:
        normed = self.norm1(x)
        q, k, v = (self.tokens(conv(normed)) for conv in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(x.tensor.shape)
        x = x + self.out(enn.GeometricTensor(attended, x.type))
        hidden = self.fc1(self.norm2(x))
        return x + self.fc2(enn.GeometricTensor(F.gelu(hidden.tensor), hidden.type))


class EscnnNet(nn.Module):
    """Blocks between plain tensors: (B, C * N, H, W) to the same shape; with `in_chans`, a lifting stem before them."""

    def __init__(
        self,
        fields: int,
        heads: int,
        order: int,
        kernel_size: int,
        mlp_ratio: float,
        depth: int,
        in_chans: int = 0,
        channels_last: bool = False,
        separable: bool = False,
    ) -> None:
        super().__init__()
        space = gspaces.rot2dOnR2(order)
        inner = enn.FieldType(space, fields * [space.regular_repr])
        self.stem = None
        self.type = inner
        if in_chans:
            self.type = enn.FieldType(space, in_chans * [space.trivial_repr])
            self.stem = enn.R2Conv(self.type, inner, 4, stride=2, padding=1, initialize=False)
            nn.init.normal_(self.stem.weights, std=0.1)
        block = (fields, heads, order, kernel_size, mlp_ratio, channels_last, separable)
        self.blocks = nn.Sequential(*(EscnnBlock(*block) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        fields = enn.GeometricTensor(x, self.type)
        if self.stem is not None:
            fields = self.stem(fields)
        return self.blocks(fields).tensor
