"""Steerable residual networks: the convolutional counterpart of `gcsa_*`.

Group convolutions in pre-activation residual blocks (`ResidualBlock`), as in Weiler and Cesa 2019, General
E(2)-Equivariant Steerable CNNs (arXiv:1911.08251). Stem, resolution, norm and head are those of `GCSA`; the two families differ
only in their blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
from timm.models import register_model

from gcsa._utils.options import Count, Range, Width
from gcsa.groups import group as make_group
from gcsa.layers import ResidualBlock
from gcsa.models.backbone import Backbone, ConvOptions, stage_info
from gcsa.models.registry import build, default_cfg, family_cfgs, merge


@dataclass(frozen=True, kw_only=True)
class GCNNOptions(ConvOptions):
    """Options of the steerable residual networks."""

    fields: Annotated[Width, "regular fields; channels are fields x the order of the group"] = 12
    depth: Annotated[Count, "residual blocks of two convolutions each"] = 4
    kernel_size: Annotated[int, Range(1, 15), "of the convolutions in the blocks, in pixels"] = 3

    @property
    def num_stages(self) -> int:
        return self.depth


class GCNN(Backbone):
    """Isotropic steerable residual network; `options` are those of `GCNNOptions`."""

    def __init__(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None, **options: Any
    ) -> None:
        o = GCNNOptions(**options)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        group = make_group(o.group)
        block: dict[str, Any] = dict(kernel_size=o.kernel_size, proj_drop=o.proj_drop_rate, **o.conv, **factory)
        stem = o.make_stem(o.fields, group, **factory)
        blocks = [ResidualBlock(o.fields, group, drop_path=rate, **block) for rate in o.drop_path_rates(o.depth)]
        info = stage_info([o.fields * group.order] * o.depth, [o.stride] * o.depth)
        super().__init__(o, stem, blocks, o.fields, info, **factory)


# Stems and heads are those of the gcsa model of the same size.
TINY = dict(group="c8", fields=12, depth=5, stem_strides=(1, 2, 1, 2), head_fields=64)
SMALL = dict(group="d4", fields=16, depth=11, stem_strides=(2, 2, 1, 2), stem_norm="batch", head_fields=128)

default_cfgs = family_cfgs(
    GCNNOptions,
    {
        "gcnn_tiny": default_cfg((1, 28, 28), 4, num_classes=10),
        "gcnn_small": default_cfg((3, 96, 96), 8, num_classes=2),
    },
)


@register_model
def gcnn_tiny(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """Steerable residual network for 28 x 28 images, at most 100k parameters."""
    return build(GCNN, "gcnn_tiny", pretrained, kwargs, partial(merge, TINY))


@register_model
def gcnn_small(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """Steerable residual network for 96 x 96 images, at most 2M parameters."""
    return build(GCNN, "gcnn_small", pretrained, kwargs, partial(merge, SMALL))
