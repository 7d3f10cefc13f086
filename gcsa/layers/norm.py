"""Layer normalisation of feature maps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FieldNorm(nn.Module):
    """Layer norm over a position's whole fibre, all (N, C) numbers, with one scale and shift for each field.

    Normalising over C alone would be equivariant too, but it gives every group element the same energy and so
    erases which orientation answered most.
    """

    def __init__(
        self,
        fields: int,
        order: int,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.fields, self.order, self.eps = fields, order, eps
        self.weight = nn.Parameter(torch.ones(fields, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(fields, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        weight, bias = (p.expand(self.order, self.fields) for p in (self.weight, self.bias))
        return F.layer_norm(x, (self.order, self.fields), weight.contiguous(), bias.contiguous(), self.eps)

    def extra_repr(self) -> str:
        return f"{self.fields}, order={self.order}"
