"""Normalization and dropout of feature maps (B, H, W, N, C), applied to whole fields, so that they are equivariant.

`FieldNorm` is a layer norm over the fibre of a position (Ba et al. 2016, arXiv:1607.06450), `FieldBatchNorm` a batch norm of each
field (Cohen & Welling 2016, arXiv:1602.07576, section 6.3).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.validation import check_choice, check_rate


class FieldNorm(nn.Module):
    """Layer norm over all (N, C) numbers of a position, with one scale and shift for each field.

    A norm over C would be equivariant too, but it gives every group element the same energy, which erases the orientation with
    the largest response.
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
        self.weight = nn.Parameter(torch.empty(fields, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(fields, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        # Over one axis: over two, the backward pass of CUDA fails for many positions (100,352 in docs/adr/0038).
        weight, bias = (p.repeat(self.order) for p in (self.weight, self.bias))
        width = self.order * self.fields
        return F.layer_norm(x.flatten(3), (width,), weight, bias, self.eps).unflatten(3, (self.order, self.fields))

    def extra_repr(self) -> str:
        return f"{self.fields}, order={self.order}"


class FieldBatchNorm(nn.Module):
    """Batch norm of each field over the batch, all positions and all group elements.

    A layer norm removes the strength of the responses at a position, and with it the brightness and sharpness of the image there. A
    batch norm keeps them. Its statistics are the same for every orientation of an image, so the layer is equivariant in training
    and evaluation. `bn` is a `BatchNorm2d`, which `torch.nn.SyncBatchNorm.convert_sync_batchnorm` and timm's `freeze` recognise.
    """

    def __init__(
        self,
        fields: int,
        order: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(fields, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape."""
        image = x.flatten(1, 2).permute(0, 3, 1, 2)  # (B, C, H * W, N), channels-last
        return self.bn(image).permute(0, 2, 3, 1).reshape(x.shape)


NORMS: dict[str, type[nn.Module]] = {"layer": FieldNorm, "batch": FieldBatchNorm}


def make_norm(kind: str, fields: int, order: int, **factory: Any) -> nn.Module:
    """The norm called `kind`, "layer" or "batch". Raises UserError for any other."""
    check_choice("norm", kind, NORMS)
    return NORMS[kind](fields, order, **factory)


class FieldDropout(nn.Module):
    """Drops whole fields of (B, H, W, N, C), with one draw for each sample and field over all positions and the group.

    So each draw is equivariant. Dropping single numbers would be equivariant only on average.

    Raises UserError for a probability outside [0, 1).
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
