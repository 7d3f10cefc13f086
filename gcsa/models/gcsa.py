"""Isotropic G-CSA vision transformers.

Group Convolutional Self-Attention for Roto-Translation Equivariance in ViTs (Zaheer, Holston, Park): a lifting stem, then
blocks of group convolutional self-attention on one resolution, and an invariant head.

| models | images and blocks |
|---|---|
| `gcsa_tiny`, `gcsa_small`, `gcsa_base` | 28 x 28, 96 x 96 and 224 x 224 |
| `gcsa_linear_*` | attention by random features, at a cost linear in the tokens, also exactly equivariant |
| `gcsa_pooled_*` | pooled over the group behind the stem; blocks on scalar fields (docs/adr/0018) |
| `gcsa_hybrid_*` | blocks of convolutions in front of those of attention (docs/adr/0022) |
| `gcsa_ocr_*` | text lines 40 pixels high and of any length (gcsa.tasks.recognition) |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from timm.models import register_model

from gcsa._utils.errors import UserError
from gcsa._utils.options import Count, Range, Rate, Width
from gcsa._utils.validation import check_divisor
from gcsa.groups import Group, group as make_group
from gcsa.layers import Block, ResidualBlock
from gcsa.models.backbone import (
    ATTN_DROP,
    Backbone,
    ConvOptions,
    MlpRatio,
    Radius,
    Stride,
    WidthOrZero,
    stage_info,
    stem_info,
)
from gcsa.models.registry import build, default_cfg, family_cfgs, merge

SCALAR_FIELD_DEFAULTS: dict[str, Any] = dict(kernel_size=1, separable=False, kv_stride=1)
"""The only values for blocks on scalar fields, where an equivariant larger filter cannot distinguish directions."""


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(ConvOptions):
    """Options of the families with blocks of G-CSA."""

    attention: Annotated[
        Literal["spatial", "group", "linear"],
        "spatial: between positions; group: between positions and group elements; linear: group by random features",
    ] = "spatial"
    radius: Annotated[Radius, "radius of the attention's neighbourhood in positions; all: every position"] = "all"
    shape: Annotated[Literal["square", "disc"], "of the neighbourhood within the radius"] = "square"
    num_random_features: Annotated[Width, "random features of attention=linear"] = 64
    kernel_size: Annotated[
        Annotated[int, Range(1, 15)] | None, "of the query, key and value convolutions; null: 3, or 1 on scalar fields"
    ] = None
    separable: Annotated[bool, "true: depthwise, then 1 x 1, convolutions of queries, keys and values"] = False
    kv_stride: Annotated[Stride, "stride of keys and values"] = 1
    mlp_ratio: Annotated[MlpRatio, "hidden fields of the MLP, as a multiple of the fields"] = 4.0
    attn_drop_rate: Annotated[Rate, ATTN_DROP] = 0.0
    layer_scale: Annotated[
        Annotated[float, Range(0, 10)], "initial value of a learned factor on each branch; 0: no factor"
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        unused = ("radius", "shape", "attn_drop_rate") if self.attention == "linear" else ("num_random_features",)
        for key in unused:
            if getattr(self, key) != getattr(AttentionOptions, key):
                raise UserError(
                    f"{key}={getattr(self, key)} has no effect with attention={self.attention}: leave it out",
                    "attention.no_effect",
                )

    @property
    def default_kernel_size(self) -> int:
        return 3

    def make_block(
        self, fields: int, num_heads: int, group: Group, radius: int | str | None = None, **options: Any
    ) -> Block:
        """A block on `fields` fields. `radius` replaces the option if it is not None; `options` are further arguments of `Block`."""
        own: dict[str, Any] = dict(radius=self.radius if radius is None else radius, shape=self.shape)
        own |= dict(attn_drop=self.attn_drop_rate)
        if self.attention == "linear":
            own = dict(num_random_features=self.num_random_features)
        own |= dict(attention=self.attention, separable=self.separable, kv_stride=self.kv_stride)
        own |= dict(
            kernel_size=self.kernel_size or self.default_kernel_size,
            mlp_ratio=self.mlp_ratio,
            layer_scale=self.layer_scale,
        )
        return Block(fields, num_heads, group, proj_drop=self.proj_drop_rate, **own, **self.conv, **options)


@dataclass(frozen=True, kw_only=True)
class GCSAOptions(AttentionOptions):
    """Options of the gcsa models with one resolution."""

    fields: Annotated[Width, "regular fields; channels are fields x the order of the group"] = 12
    scalar_fields: Annotated[
        WidthOrZero,
        "above 0: pool over the group behind the stem, and use blocks of 1 x 1 convolutions on this many scalar fields",
    ] = 0
    depth: Annotated[Count, "blocks of attention"] = 4
    conv_depth: Annotated[
        Annotated[int, Range(0, 256)], "residual blocks of two 3 x 3 convolutions in front of the attention blocks"
    ] = 0
    num_heads: Annotated[Count, "attention heads; must divide the fields of the blocks"] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divisor("num_heads", self.num_heads, "scalar_fields" if self.scalar_fields else "fields", self.width)
        for key, only in SCALAR_FIELD_DEFAULTS.items() if self.scalar_fields else ():
            if getattr(self, key) not in (None, only):
                raise UserError(
                    f"{key}={getattr(self, key)} is for regular fields: set {key}={only} or scalar_fields=0",
                    "scalar_fields.needs",
                )

    @property
    def width(self) -> int:
        """Fields of the blocks."""
        return self.scalar_fields or self.fields

    @property
    def default_kernel_size(self) -> int:
        return 1 if self.scalar_fields else 3

    @property
    def num_stages(self) -> int:
        return self.depth + (0 if self.scalar_fields else self.conv_depth)

    @property
    def stem_levels(self) -> int:
        return len(self.stem_strides) if self.scalar_fields and self.conv_depth else 0


class GCSA(Backbone):
    """Isotropic G-CSA transformer; `options` are those of `GCSAOptions`.

    With `scalar_fields`, the stem ends in a `GroupPooling`. Features are then (B, scalar_fields, H / s, W / s) and rotate with
    the image. The blocks have 1 x 1 convolutions, so they see positions only through `positions`, a `radius` or `conv_depth`;
    "spatial" and "group" attention are the same, and so are global_pool "avg" and "max". The blocks of `conv_depth` then
    stand in the stem, in front of the pooling, and have neither dropout nor stochastic depth. The feature maps of such a network
    begin with those of the stem, of regular fields: behind each convolution but the last, and behind these blocks.

    Raises:
        UserError: an impossible value; larger filters together with scalar_fields; in forward, an image whose sides are no
            multiples of the strides, or whose map is smaller than the radius.
    """

    def __init__(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None, **options: Any
    ) -> None:
        o = GCSAOptions(**options)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        group = make_group(o.group)
        feature_group = make_group("c1") if o.scalar_fields else group
        # An equivariant larger filter on scalar fields cannot distinguish directions, so convolutions precede the pooling.
        in_stem = o.conv_depth if o.scalar_fields else 0
        stem = o.make_stem(o.fields, group, depth=in_stem, scalar_fields=o.scalar_fields, **factory)
        rates = o.drop_path_rates(o.num_stages)
        first = o.num_stages - o.depth
        conv: dict[str, Any] = dict(proj_drop=o.proj_drop_rate, **o.conv, **factory)
        blocks: list[Any] = [ResidualBlock(o.width, group, drop_path=rate, **conv) for rate in rates[:first]]
        blocks += [
            o.make_block(o.width, o.num_heads, feature_group, drop_path=rate, **factory) for rate in rates[first:]
        ]
        info = stage_info([o.width * feature_group.order] * o.num_stages, [o.stride] * o.num_stages)
        if o.stem_levels:
            info = [*stem_info(stem, group.order), *info]
        super().__init__(o, stem, blocks, o.width, info, feature_group, **factory)


# Sizes. `fields` is for groups of order 8; `scale_fields` keeps the number of parameters for others.
TINY: dict[str, Any] = dict(
    group="c8", fields=12, depth=3, num_heads=2, stem_strides=(1, 2, 1, 2), head_fields=64, mlp_ratio=2
)
SMALL: dict[str, Any] = dict(
    group="d4", fields=16, depth=6, num_heads=4, stem_strides=(2, 2, 1, 2), head_fields=128, mlp_ratio=2
)
SMALL |= dict(stem_norm="batch")  # docs/adr/0017
BASE = dict(group="c4", fields=128, depth=12, num_heads=8, stem_strides=(4, 4), separable=True, layer_scale=1e-4)
POOLED: dict[str, Any] = dict(
    group="d4", fields=16, scalar_fields=96, depth=4, num_heads=4, mlp_ratio=2, stem_norm="batch"
)
POOLED |= dict(stem_strides=(2, 2, 2), stem_fields=(24, 8), stem_separable=True, low_pass=False)
OCR = dict(group="c4", num_heads=4, stem_strides=(2, 2, 2), separable=True, mlp_ratio=2)

default_cfgs = family_cfgs(
    GCSAOptions,
    {
        "gcsa_tiny": default_cfg((1, 28, 28), 4, num_classes=10),
        "gcsa_small": default_cfg((3, 96, 96), 8, num_classes=2),
        "gcsa_base": default_cfg((3, 224, 224), 16),
        "gcsa_linear_tiny": default_cfg((1, 28, 28), 4, num_classes=10),
        "gcsa_linear_small": default_cfg((3, 96, 96), 8, num_classes=2),
        "gcsa_pooled_small": default_cfg((3, 96, 96), 8, num_classes=2),
        "gcsa_hybrid_tiny": default_cfg((1, 28, 28), 4, num_classes=10),
        "gcsa_hybrid_small": default_cfg((3, 96, 96), 8, num_classes=2),
        "gcsa_ocr_tiny": default_cfg((1, 40, 480), 8),
        "gcsa_ocr_small": default_cfg((1, 40, 480), 8),
    },
)


def _merge(size: Mapping[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    if not kwargs.get("scalar_fields", size.get("scalar_fields")):
        return merge(size, kwargs, size["num_heads"])
    # The heads divide scalar fields, which are not scaled and have no larger filters.
    return merge({key: value for key, value in size.items() if key not in SCALAR_FIELD_DEFAULTS}, kwargs)


def _create(name: str, pretrained: bool, kwargs: dict[str, Any], size: dict[str, Any], **more: Any) -> GCSA:
    return build(GCSA, name, pretrained, kwargs, partial(_merge, {**size, **more}))


@register_model
def gcsa_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """G-CSA for 28 x 28 images, at most 100k parameters."""
    return _create("gcsa_tiny", pretrained, kwargs, TINY)


@register_model
def gcsa_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """G-CSA for 96 x 96 images, at most 2M parameters."""
    return _create("gcsa_small", pretrained, kwargs, SMALL)


@register_model
def gcsa_base(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """G-CSA for 224 x 224 images, of the size of ViT-S."""
    return _create("gcsa_base", pretrained, kwargs, BASE)


@register_model
def gcsa_linear_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` with attention at a cost linear in the tokens."""
    return _create("gcsa_linear_tiny", pretrained, kwargs, TINY, attention="linear")


@register_model
def gcsa_linear_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_small` with attention at a cost linear in the tokens."""
    return _create("gcsa_linear_small", pretrained, kwargs, SMALL, attention="linear")


@register_model
def gcsa_pooled_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """For 96 x 96 images of tissue or small objects: attention between scalar fields."""
    return _create("gcsa_pooled_small", pretrained, kwargs, POOLED)


@register_model
def gcsa_hybrid_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` with four blocks of convolutions in front of one of attention, at most 100k parameters."""
    return _create("gcsa_hybrid_tiny", pretrained, kwargs, TINY, conv_depth=4, depth=1)


@register_model
def gcsa_hybrid_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_pooled_small` with three blocks of convolutions in front of the pooling and one of attention behind it."""
    return _create("gcsa_hybrid_small", pretrained, kwargs, POOLED, conv_depth=3, depth=1)


@register_model
def gcsa_ocr_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """Encoder of text lines 40 pixels high, about 0.13M parameters."""
    return _create("gcsa_ocr_tiny", pretrained, kwargs, OCR, fields=23, depth=3)


@register_model
def gcsa_ocr_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """Encoder of text lines 40 pixels high, about 0.5M parameters."""
    return _create("gcsa_ocr_small", pretrained, kwargs, OCR, fields=34, depth=6)
