"""Pooling of feature maps to scalar fields and to class scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int, check_rate
from gcsa.groups import Group, group as make_group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.layout import from_nchw
from gcsa.layers.positions import squared_distances

POOLS = ("avg", "max", "")


class GroupPooling(nn.Module):
    """A 1 x 1 group convolution, a GELU, and the maximum over the group (Cohen & Welling 2016, arXiv:1602.07576, section
    6.3): (B, H, W, N, C) to scalar fields (B, H, W, 1, out_fields).

    A scalar field rotates with the image and keeps its values. So any linear map of the channels, and attention between positions,
    is equivariant behind this layer. A feature is one number per position instead of N. The relative orientation of structures
    at different positions is lost.
    """

    def __init__(
        self,
        fields: int,
        out_fields: int,
        group: str | Group,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.expand = SteerableConv2d(fields, out_fields, 1, group, **factory)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, H, W, 1, out_fields)."""
        return F.gelu(self.expand(x)).amax(3, keepdim=True)


def check_classes(num_classes: int, pool: str, pools: Sequence[str]) -> None:
    """Raises ValueError for an unknown pool, and for an unpooled map ("") together with classes, as timm does."""
    check_int("num_classes", num_classes, 0)
    if pool not in pools:
        raise UserError(f"unknown global_pool {pool!r}: choose one of {', '.join(map(repr, pools))}", "global_pool")
    if pool == "" and num_classes > 0:
        raise UserError(
            f"global_pool='' leaves a map, which has no classes: set num_classes=0, not {num_classes}",
            "global_pool.classes",
        )


class CentredMean(nn.Module):
    """Mean over positions, each field with its own Gaussian weight of the distance to the map's centre.

    It is for data with labels about the centre (see `positions.py`). Positions at one distance have one weight, so no rotation or
    reflection about the centre changes the mean. The weight is exp(-s r^2), with a learned `sharpness` s, and r = 1 at the middle
    of the shorter sides. Initial values are spread evenly over the fields, from 0 (the plain mean) to `SHARPEST`.
    """

    SHARPEST = 8.0

    def __init__(self, fields: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.empty(fields, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.sharpness.copy_(torch.linspace(0, self.SHARPEST, len(self.sharpness)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, N, C)."""
        squared = squared_distances(x.shape[1], x.shape[2], x).flatten()
        weights = torch.softmax(-squared[:, None] * self.sharpness, dim=0)
        return (x.flatten(1, 2) * weights[:, None]).sum(1)


class NoHead(nn.Module):
    """Replaces a head that was removed, and returns the features unchanged.

    The parameters of an unused head would get no gradient, which stops distributed training.
    """

    global_pool = ""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Identity()

    def reset(self, num_classes: int, pool: str | None = None) -> None:
        """Raises ValueError for anything but no classes and the unpooled map."""
        if num_classes != 0 or pool:
            raise UserError(
                "the head of this model was taken away, to leave feature maps: create the model again", "head.missing"
            )

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The features as they are, such as (B, N * C, H, W)."""
        return x


class InvariantHead(nn.Module):
    """Mean over positions, then mean ("avg") or maximum ("max") over the group, norm, dropout and a linear classifier.

    The exact elements of the group do not change the result.

    Args:
        fields: regular fields in.
        num_classes: classes; 0 for none.
        group: such as "c8".
        hidden_fields: fields of a 1 x 1 group convolution with a GELU in front of the pooling; 0 for none.
        pool: "avg", "max", or "" to return the map unpooled, without classes.
        drop_rate: dropout in front of the classifier.
        centred: take a `CentredMean` over positions.

    Raises:
        ValueError: an unknown pool, pool "" together with classes, a drop rate outside [0, 1).
    """

    def __init__(
        self,
        fields: int,
        num_classes: int,
        group: str | Group,
        hidden_fields: int = 0,
        pool: str = "avg",
        drop_rate: float = 0.0,
        centred: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_rate("drop_rate", drop_rate)
        check_int("hidden_fields", hidden_fields, 0)
        check_classes(num_classes, pool, POOLS)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        group = make_group(group)
        self.order, self.global_pool = group.order, pool  # timm reads it when it saves a model
        self.num_features = hidden_fields or fields
        expand: nn.Module = nn.Identity()
        if hidden_fields:
            expand = nn.Sequential(SteerableConv2d(fields, hidden_fields, 1, group, **factory), nn.GELU())
        self.expand = expand
        self.centred = CentredMean(self.num_features, **factory) if centred else None
        # Means over a whole map differ little between images. The norm amplifies these differences for the classifier.
        self.norm = nn.LayerNorm(self.num_features, eps=1e-6, **factory)
        self.drop = nn.Dropout(drop_rate)
        self.reset(num_classes, pool)

    def reset(self, num_classes: int, pool: str | None = None) -> None:
        """Makes a new classifier for `num_classes` (0: none), on the device and in the dtype of the present parameters, and sets
        `pool` unless it is None.

        Raises ValueError as the constructor does, and then changes nothing.
        """
        pool = self.global_pool if pool is None else pool
        check_classes(num_classes, pool, POOLS)
        self.global_pool = pool
        like = self.norm.weight
        self.fc: nn.Module = nn.Identity()
        if num_classes > 0:
            self.fc = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives the classifier small weights, so that all classes are about equally likely at first."""
        if isinstance(self.fc, nn.Linear):
            nn.init.trunc_normal_(self.fc.weight, std=0.02)
            nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B, N * C, H, W) to logits (B, num_classes), or to (B, num_features) where `pre_logits` is true."""
        if self.global_pool == "":
            return x
        x = self.expand(from_nchw(x, self.order))
        x = x.mean((1, 2)) if self.centred is None else self.centred(x)
        x = self.drop(self.norm(x.amax(1) if self.global_pool == "max" else x.mean(1)))
        return x if pre_logits else self.fc(x)
