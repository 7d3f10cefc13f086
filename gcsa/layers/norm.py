"""Normalisation and dropout of feature maps (B, H, W, N, C)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_rate


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


class FieldBatchNorm(nn.Module):
    """Batch norm of each field over the batch, all positions and all group elements (Cohen & Welling 2016, section 6.3).

    A layer norm forgets how strong the answers at a position are, and with them how dark or how sharp the image is
    there; the statistics of a batch leave that. They are the same for every pose of an image, so the layer is
    equivariant in training and in evaluation. For processes that train together,
    `torch.nn.SyncBatchNorm.convert_sync_batchnorm` converts it.
    """

    def __init__(
        self,
        fields: int,
        order: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(fields, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        return self.bn(x.flatten(0, 3)).view(x.shape)


NORMS: dict[str, type[nn.Module]] = {"layer": FieldNorm, "batch": FieldBatchNorm}


def make_norm(kind: str, fields: int, order: int, **factory: Any) -> nn.Module:
    """The norm called `kind`, "layer" or "batch". Raises ValueError for any other."""
    if kind not in NORMS:
        raise UserError(f"unknown norm {kind!r}: choose one of {', '.join(NORMS)}")
    return NORMS[kind](fields, order, **factory)


class FieldDropout(nn.Module):
    """Drops whole fields of (B, H, W, N, C): one draw for each sample and field, over all positions and the group.

    So each draw is equivariant, not only their mean; single numbers dropped at random would break every draw.
    Raises ValueError for a probability outside [0, 1).
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        check_rate("proj_drop", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape; the identity in eval mode."""
        if not self.training or self.p == 0.0:
            return x
        return x * F.dropout(x.new_ones((x.shape[0], 1, 1, 1, x.shape[4])), self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
