"""Vision transformers of group self-attention with relative encodings, G-SA.

GSA-Nets (Romero and Cordonnier 2021) with the encoding as corrected by Schreiber (GSA-Nets and LoRAs for TrOCR): lifting
self-attention on the pixels, exact mean pooling, blocks of group self-attention and an invariant head. Width, depth and number
of tokens are those of `gcsa_tiny` (28 x 28) and `gcsa_small` (96 x 96). `z2sa_tiny` is the case of the trivial group:
self-attention on Z^2 with relative position encodings.
"""

# Annotations stay objects here (no `from __future__`), because torch.fx copies them into code that TorchScript reads.
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from gcsa._utils.options import Count, Range, Rate, Width
from gcsa.groups import Group, group as make_group
from gcsa.layers import FieldMlp, FieldNorm, LiftingSelfAttention, RelativeSelfAttention, from_nchw, to_nchw
from gcsa.layers.blocks import mlp_width
from gcsa.layers.windows import check_window_size
from gcsa.models.backbone import ATTN_DROP, Backbone, BackboneOptions, MlpRatio, Radius, Stride, stage_info
from gcsa.models.registry import MODEL_OPTIONS, build, merge


class LiftingStem(nn.Module):
    """Lifting self-attention at full resolution, norm, GELU, and the exactly equivariant mean over stride x stride pixels.

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
    """x + G-SA(norm(x)), then x + MLP(norm(x)), on (B, H, W, N, C). `attention` holds arguments of `RelativeSelfAttention`."""

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
        self.mlp = FieldMlp(fields, mlp_width(fields, mlp_ratio), group, proj_drop, **factory)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


@dataclass(frozen=True, kw_only=True)
class GSAOptions(BackboneOptions):
    """Options of the models with relative encodings."""

    encoding: Annotated[
        Literal["corrected", "gevit", "original"], "corrected, gevit, or original, which is not equivariant"
    ] = "corrected"
    radius: Annotated[Radius | None, "radius of the attention's neighbourhood in positions; all: every position"] = (
        "all"
    )
    fields: Annotated[Width, "regular fields; channels are fields x the order of the group"] = 16
    depth: Annotated[Count, "blocks"] = 4
    num_heads: Annotated[Count, "attention heads; must divide the fields"] = 2
    lift_radius: Annotated[Annotated[int, Range(0, 64)], "radius of the lifting self-attention, in pixels"] = 2
    lift_heads: Annotated[Count, "heads of the lifting self-attention; must divide the fields"] = 4
    stride: Annotated[Stride, "pixels a side that the stem averages to one position"] = 4
    waves: Annotated[Annotated[int, Range(1, 1024)], "hidden numbers of the spatial encodings"] = 16
    mlp_ratio: Annotated[MlpRatio, "hidden fields of the MLP, as a multiple of the fields"] = 2.0
    attn_drop_rate: Annotated[Rate, ATTN_DROP] = 0.0

    @property
    def num_stages(self) -> int:
        return self.depth


class GSA(Backbone):
    """G-SA transformer; `options` are those of `GSAOptions`. With encoding "original" it is not equivariant.

    Raises:
        UserError: an impossible value; in forward, an image whose sides are no multiples of the stride, or whose map is
            smaller than the radius.
    """

    def __init__(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None, **options: Any
    ) -> None:
        o = GSAOptions(**options)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        group = make_group(o.group)
        stem = LiftingStem(o.in_chans, o.fields, o.lift_heads, group, o.lift_radius, o.stride, o.waves, factory)
        attention: dict[str, Any] = dict(encoding=o.encoding, radius=o.radius, waves=o.waves)
        attention |= dict(attn_drop=o.attn_drop_rate)
        blocks: list[nn.Module] = [
            RelativeBlock(o.fields, o.num_heads, group, o.mlp_ratio, rate, o.proj_drop_rate, factory, **attention)
            for rate in o.drop_path_rates(o.depth)
        ]
        info = stage_info([o.fields * group.order] * o.depth, [o.stride] * o.depth)
        super().__init__(o, stem, blocks, o.fields, info, **factory)

    def check_input_size(self, height: int, width: int) -> None:
        """As in `Backbone`. Also raises UserError for an image smaller than the neighbourhood of the lifting."""
        super().check_input_size(height, width)
        check_window_size(self.stem.attn.radius, height, width)  # type: ignore[union-attr]


# Sizes. `fields` is for groups of order 8; `scale_fields` keeps the number of parameters for others.
TINY: dict[str, Any] = dict(group="c4", fields=12, depth=3, num_heads=2, stride=4, head_fields=64)
SMALL: dict[str, Any] = dict(group="c4", fields=16, depth=6, num_heads=4, radius=2, stride=8, head_fields=128)
Z2 = {**TINY, "group": "c1", "fields": 10}  # as many parameters as gsa_tiny

MODEL_OPTIONS.update(dict.fromkeys(("gsa_tiny", "gsa_small", "z2sa_tiny"), GSAOptions))


def _create(name: str, pretrained: bool, kwargs: dict[str, Any], size: dict[str, Any]) -> GSA:
    # Fields are a multiple of the 4 heads of the lifting, which the heads of the blocks divide.
    return build(GSA, name, pretrained, kwargs, partial(merge, size, num_heads=4))


def gsa_tiny(pretrained: bool = False, **kwargs: Any) -> GSA:
    """G-SA for 28 x 28 images, at most 100k parameters."""
    return _create("gsa_tiny", pretrained, kwargs, TINY)


def gsa_small(pretrained: bool = False, **kwargs: Any) -> GSA:
    """G-SA for 96 x 96 images."""
    return _create("gsa_small", pretrained, kwargs, SMALL)


def z2sa_tiny(pretrained: bool = False, **kwargs: Any) -> GSA:
    """Self-attention on Z^2 with relative encodings, for 28 x 28 images."""
    return _create("z2sa_tiny", pretrained, kwargs, Z2)
