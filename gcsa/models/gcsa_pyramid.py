"""Four-stage G-CSA vision transformers for 224 x 224 and for dense tasks.

G-CSA (Zaheer, Holston, Park) in the pyramid that detection and segmentation heads expect: feature maps at 1/4, 1/8,
1/16 and 1/32. Attention is to a neighbourhood on the two large maps, and to all positions on the two small ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from timm.models import register_model
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.options import Count, Range, Width
from gcsa._utils.validation import check_divisor
from gcsa.groups import group as make_group
from gcsa.layers import Downsample
from gcsa.models.backbone import Backbone, Radius, stage_info
from gcsa.models.gcsa import AttentionOptions
from gcsa.models.registry import build, default_cfg, family_cfgs, merge


@dataclass(frozen=True, kw_only=True)
class PyramidOptions(AttentionOptions):
    """Options of the gcsa models with four stages. `radius` is for stages whose entry in `radii` is null."""

    fields: Annotated[Sequence[Width], "regular fields of each stage, as [16, 32, 64, 128]"] = (16, 32, 64, 128)
    depths: Annotated[Sequence[Count], "blocks of each stage"] = (2, 2, 6, 2)
    num_heads: Annotated[Sequence[Count], "attention heads of each stage; must divide its fields"] = (1, 2, 4, 8)
    radii: Annotated[
        Sequence[Radius | None],
        "radius of each stage's neighbourhood in positions, such as [3, 3, all, all]; all: every position",
    ] = (3, 3, "all", "all")
    feature_maps: Annotated[
        Literal["regular", "invariant"],
        "of features_only: regular, or invariant, pooled over the group, for decoders of other libraries",
    ] = "regular"
    output_stride: Annotated[
        Annotated[int, Range(1, 1024)] | None, "of the last stage; only checked, since no stage is dilated"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = [len(entries) for entries in (self.fields, self.depths, self.num_heads, self.radii)]
        if len(set(lengths)) > 1:
            raise UserError(
                "fields, depths, num_heads and radii need one entry a stage each, not {}, {}, {} and {}".format(
                    *lengths
                ),
                "pyramid.stages",
            )
        for fields, num_heads in zip(self.fields, self.num_heads, strict=True):
            check_divisor("num_heads", num_heads, "fields", fields)
        if self.output_stride not in (None, self.strides[-1]):
            raise UserError(
                f"output_stride={self.output_stride} needs dilated stages, and a pyramid has none (its last stage is at "
                f"{self.strides[-1]}): use a decoder without it, of all feature maps, such as a U-Net, an FPN or Segformer",
                "output_stride",
            )

    @property
    def num_stages(self) -> int:
        return len(self.depths)

    @property
    def strides(self) -> list[int]:
        """Pixels a position of each stage."""
        return [self.stride * 2**i for i in range(self.num_stages)]


class GCSAPyramid(Backbone):
    """G-CSA transformer of four stages, each at half the resolution of the one before; the first is at 1/4.

    `options` are those of `PyramidOptions`. `feature_maps` selects the output of timm's `features_only` and of
    `forward_intermediates`; features and logits are the same with both.

    | value       | output of a stage                                      | under a rotation of the image          |
    |-------------|--------------------------------------------------------|----------------------------------------|
    | "regular"   | its fields, (B, N * C, h, w)                           | rotates, and its channels are permuted |
    | "invariant" | their maximum over the group, (B, C, h, w)             | rotates                                |

    Raises:
        UserError: as `GCSA`, and for lists of different lengths and another output_stride.
    """

    def __init__(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None, **options: Any
    ) -> None:
        o = PyramidOptions(**options)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        group = make_group(o.group)
        rates = iter(o.drop_path_rates(sum(o.depths)))
        stem = o.make_stem(o.fields[0], group, **factory)
        stages: list[nn.Module] = []
        before = o.fields[0]
        for i, (fields, depth, num_heads, radius) in enumerate(
            zip(o.fields, o.depths, o.num_heads, o.radii, strict=True)
        ):
            stage: list[nn.Module] = [Downsample(before, fields, group, **o.conv, **factory)] if i > 0 else []
            stage += [
                o.make_block(fields, num_heads, group, radius, drop_path=next(rates), **factory) for _ in range(depth)
            ]
            stages.append(nn.Sequential(*stage))
            before = fields
        channels = 1 if o.feature_maps == "invariant" else group.order
        info = stage_info([fields * channels for fields in o.fields], o.strides)
        super().__init__(o, stem, stages, o.fields[-1], info, **factory)
        self.feature_maps = o.feature_maps

    def as_map(self, x: Tensor) -> Tensor:
        """A stage's output (B, h, w, N, C) as `forward_intermediates` returns it: (B, N * C, h, w), or (B, C, h, w) if
        `feature_maps` is "invariant"."""
        return super().as_map(x.amax(3, keepdim=True) if self.feature_maps == "invariant" else x)


# `fields` is for groups of order 8; `scale_fields` keeps the number of parameters for others.
SHARED: dict[str, Any] = dict(group="c4", separable=True, layer_scale=1e-4)
TINY = dict(SHARED, fields=(8, 16, 32, 64), depths=(2, 2, 4, 2), num_heads=(1, 2, 4, 8))
SMALL = dict(SHARED, fields=(16, 32, 80, 160), depths=(2, 2, 8, 2), num_heads=(1, 2, 5, 10))
BASE = dict(SHARED, fields=(24, 48, 128, 256), depths=(2, 3, 12, 3), num_heads=(1, 3, 8, 16))

default_cfgs = family_cfgs(
    PyramidOptions,
    {f"gcsa_pyramid_{size}": default_cfg((3, 224, 224), 32) for size in ("tiny", "small", "base")},
)


def _merge(size: Mapping[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    arguments = merge(size, kwargs, size["num_heads"])
    if kwargs.get("attention") == "linear":  # it has no neighbourhoods
        arguments.setdefault("radii", ("all",) * len(arguments["depths"]))
    if kwargs.get("feature_maps") == "invariant" and kwargs.get("feature_cls", "getter") != "getter":
        raise UserError(
            f"feature_cls={kwargs['feature_cls']!r} takes a stage's own output, not feature_maps='invariant': "
            "leave out feature_cls",
            "feature_cls",
        )
    return arguments


@register_model
def gcsa_pyramid_tiny(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """Four stages, the smallest."""
    return build(GCSAPyramid, "gcsa_pyramid_tiny", pretrained, kwargs, partial(_merge, TINY))


@register_model
def gcsa_pyramid_small(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """Four stages, of the size of a ResNet-18."""
    return build(GCSAPyramid, "gcsa_pyramid_small", pretrained, kwargs, partial(_merge, SMALL))


@register_model
def gcsa_pyramid_base(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """Four stages, the largest."""
    return build(GCSAPyramid, "gcsa_pyramid_base", pretrained, kwargs, partial(_merge, BASE))
