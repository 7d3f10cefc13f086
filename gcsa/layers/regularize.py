"""Dropout that respects fields."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from gcsa.layers.checks import check_rate


class FieldDropout(nn.Module):
    """Drops whole fields of (B, H, W, N, C): one draw for each sample and field, over all positions and the group.

    So each draw is equivariant, not only their mean; single numbers dropped at random would break every draw.
    Raises ValueError for a probability outside [0, 1).
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        check_rate(proj_drop=p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape; the identity in eval mode."""
        if not self.training or self.p == 0.0:
            return x
        return x * F.dropout(x.new_ones((x.shape[0], 1, 1, 1, x.shape[4])), self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
