"""Vision transformers of group self-attention with relative encodings, G-SA.

GSA-Nets (Romero and Cordonnier 2021) with the encoding as corrected by Schreiber (GSA-Nets and LoRAs for TrOCR), in
the width, depth and number of tokens of `gcsa_tiny` (28 x 28) and `gcsa_small` (96 x 96): lifting self-attention on the
pixels, exact mean pooling, blocks of group self-attention and an invariant head. `z2sa_tiny` is the case of the
trivial group, self-attention on Z^2 with relative position encodings.
"""

# Annotations stay objects here (no `from __future__`), because torch.fx copies them into code that TorchScript reads.
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from timm.models import build_model_with_cfg
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.block import FieldMlp
from gcsa.layers.head import from_nchw, to_nchw
from gcsa.layers.norm import FieldNorm
from gcsa.layers.relative_self_attention import LiftingSelfAttention, RelativeSelfAttention, check_radius
from gcsa.models.backbone import Backbone, fields_for
from gcsa.models.registry import default_cfg, register_family


class LiftingStem(nn.Module):
    """Lifting self-attention at full resolution, norm, GELU, and the mean over stride x stride pixels, which is exact.

    (B, in_chans, H, W) to (B, H / stride, W / stride, N, fields).
    """

    def __init__(
        self,
        in_chans: int,
        fields: int,
        heads: int,
        group: Group,
        radius: int,
        stride: int,
        waves: int,
        factory: dict[str, Any],
    ) -> None:
        super().__init__()
        self.order, self.stride = group.order, stride
        self.attn = LiftingSelfAttention(in_chans, fields, heads, group, radius, waves, **factory)
        self.norm1 = FieldNorm(fields, group.order, **factory)
        self.norm2 = FieldNorm(fields, group.order, **factory)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm1(self.attn(x)))
        return self.norm2(from_nchw(F.avg_pool2d(to_nchw(x), self.stride), self.order))


class RelativeBlock(nn.Module):
    """x + G-SA(norm(x)), then x + MLP(norm(x)), on (B, H, W, N, C); `attention` goes to `RelativeSelfAttention`."""

    def __init__(
        self,
        fields: int,
        heads: int,
        group: Group,
        mlp_ratio: float,
        drop_path: float,
        proj_drop: float,
        factory: dict[str, Any],
        **attention: Any,
    ) -> None:
        super().__init__()
        self.norm1 = FieldNorm(fields, group.order, **factory)
        self.attn = RelativeSelfAttention(fields, heads, group, proj_drop=proj_drop, **attention, **factory)
        self.norm2 = FieldNorm(fields, group.order, **factory)
        self.mlp = FieldMlp(fields, int(fields * mlp_ratio), group, proj_drop, **factory)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class GSA(Backbone):
    """G-SA transformer.

    Args:
        group: "c" or "d" and a number of rotations.
        encoding: "corrected" or "gevit", or "original", with which the model is not equivariant.
        radius: of the blocks' neighbourhoods in positions; None: all positions.
        lift_radius, lift_heads: of the lifting self-attention, in pixels; lift_heads must divide `fields`.
        stride: pixels a side that the stem averages to one position.
        waves: hidden numbers of the spatial encodings.
        mlp_ratio: hidden fields of the MLP, as a multiple of `fields`.
        The others are as in `GCSA`.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        group: str = "c4",
        encoding: str = "corrected",
        radius: int | None = None,
        fields: int = 16,
        depth: int = 4,
        heads: int = 2,
        lift_radius: int = 2,
        lift_heads: int = 4,
        stride: int = 4,
        waves: int = 16,
        mlp_ratio: float = 2.0,
        head_fields: int = 0,
        global_pool: str = "max",
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        img_size: int | tuple[int, int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, not {depth}")
        if stride < 1:
            raise ValueError(f"stride must be 1 or more, not {stride}")
        h = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        attention = dict(encoding=encoding, radius=radius, waves=waves)
        rates = [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]
        super().__init__(
            h,
            LiftingStem(in_chans, fields, lift_heads, h, lift_radius, stride, waves, factory),
            [RelativeBlock(fields, heads, h, mlp_ratio, rate, proj_drop_rate, factory, **attention) for rate in rates],
            [dict(num_chs=fields * h.order, reduction=stride, module=f"stages.{i}") for i in range(depth)],
            fields,
            num_classes,
            in_chans,
            img_size,
            dict(hidden_fields=head_fields, pool=global_pool, drop_rate=drop_rate),
            factory,
        )

    def check_input_size(self, height: int, width: int) -> None:
        """As in `Backbone`; also ValueError for a map smaller than a neighbourhood."""
        super().check_input_size(height, width)
        check_radius(self.stem.attn.radius, height, width)  # type: ignore[union-attr]
        check_radius(self.stages[0].attn.radius, height // self.multiple, width // self.multiple)  # type: ignore[union-attr]


# Fields at order 8; other groups get the number that keeps the parameters (`fields_for`).
TINY: dict[str, Any] = dict(fields=12, depth=3, heads=2, stride=4, head_fields=64)
SIZES: dict[str, dict[str, Any]] = {
    "gsa_tiny": TINY,
    "gsa_small": dict(fields=16, depth=6, heads=4, radius=2, stride=8, head_fields=128),
    "z2sa_tiny": {**TINY, "fields": 10},  # as many parameters as gsa_tiny
}
DEFAULT_GROUPS = {"gsa_tiny": "c4", "gsa_small": "c4", "z2sa_tiny": "c1"}

CFGS = {
    "gsa_tiny": default_cfg((1, 28, 28), 4, num_classes=10, first_conv="stem.attn.qkv"),
    "gsa_small": default_cfg((3, 96, 96), 8, num_classes=2, first_conv="stem.attn.qkv"),
    "z2sa_tiny": default_cfg((1, 28, 28), 4, num_classes=10, first_conv="stem.attn.qkv"),
}


def _create(size: str, variant: str, group: str, pretrained: bool, **kwargs: Any) -> GSA:
    arguments = {**SIZES[size], "group": group, **kwargs}
    if "fields" not in kwargs:
        # Whole heads of the lifting, whose number the heads of the blocks divide.
        arguments["fields"] = fields_for(SIZES[size]["fields"], make_group(group).order, heads=4)
    feature_cfg = dict(out_indices=tuple(range(arguments["depth"])), feature_cls="getter")
    return build_model_with_cfg(GSA, variant, pretrained, feature_cfg=feature_cfg, **arguments)


register_family(__name__, _create, DEFAULT_GROUPS, CFGS, bare=("z2sa_tiny",))
