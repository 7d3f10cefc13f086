"""Four-stage G-CSA vision transformers for 224 x 224 and for dense tasks.

G-CSA (Zaheer, Holston, Park) in the pyramid that detection and segmentation heads expect: feature maps at 1/4, 1/8,
1/16 and 1/32. The two large maps attend to a neighbourhood, the two small ones to everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from timm.models import build_model_with_cfg
from torch import nn

from gcsa.groups import group as make_group
from gcsa.layers.block import Block, Downsample, Stem
from gcsa.models.backbone import Backbone, fields_for
from gcsa.models.registry import default_cfg, register_family


class GCSAPyramid(Backbone):
    """G-CSA transformer of four stages, each at half the resolution of the one before; the first is at 1/4.

    Args:
        group: "c" or "d" and a number of rotations.
        fields, depths, heads, radii: for each stage, regular fields C, blocks, attention heads, and the radius of
            the neighbourhood in positions (None: everywhere).
        The others are as in `GCSA`.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        group: str = "c4",
        fields: Sequence[int] = (16, 32, 64, 128),
        depths: Sequence[int] = (2, 2, 6, 2),
        heads: Sequence[int] = (1, 2, 4, 8),
        radii: Sequence[int | None] = (3, 3, None, None),
        stem_strides: Sequence[int] = (2, 2),
        padding_mode: str = "zeros",
        head_fields: int = 0,
        global_pool: str = "max",
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        img_size: int | tuple[int, int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **block: Any,
    ) -> None:
        if not len(fields) == len(depths) == len(heads) == len(radii):
            raise ValueError(
                f"fields, depths, heads and radii need one entry a stage each, not {len(fields)}, {len(depths)}, "
                f"{len(heads)} and {len(radii)}"
            )
        h = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        rates = iter(drop_path_rate * i / max(sum(depths) - 1, 1) for i in range(sum(depths)))
        stages: list[nn.Module] = []
        feature_info = []
        stride = math.prod(stem_strides)
        for i, (width, radius) in enumerate(zip(fields, radii, strict=True)):
            stage: list[nn.Module] = []
            if i > 0:
                stage.append(Downsample(fields[i - 1], width, h, padding_mode, **factory))
                stride *= 2
            near = {} if radius is None else {"radius": radius}
            arguments = {**near, "proj_drop": proj_drop_rate, "padding_mode": padding_mode, **block, **factory}
            stage += [Block(width, heads[i], h, drop_path=next(rates), **arguments) for _ in range(depths[i])]
            stages.append(nn.Sequential(*stage))
            feature_info.append(dict(num_chs=width * h.order, reduction=stride, module=f"stages.{i}"))
        super().__init__(
            h,
            Stem(in_chans, fields[0], h, stem_strides, padding_mode, **factory),
            stages,
            feature_info,
            fields[-1],
            num_classes,
            in_chans,
            img_size,
            dict(hidden_fields=head_fields, pool=global_pool, drop_rate=drop_rate),
            factory,
        )


# Fields at order 8; other groups get the number that keeps the parameters (`fields_for`).
SIZES: dict[str, dict[str, Any]] = {
    "gcsa_pyramid_tiny": dict(fields=(8, 16, 32, 64), depths=(2, 2, 4, 2), heads=(1, 2, 4, 8)),
    "gcsa_pyramid_small": dict(fields=(16, 32, 80, 160), depths=(2, 2, 8, 2), heads=(1, 2, 5, 10)),
    "gcsa_pyramid_base": dict(fields=(24, 48, 128, 256), depths=(2, 3, 12, 3), heads=(1, 3, 8, 16)),
}
DEFAULT_GROUPS = dict.fromkeys(SIZES, "c4")
CFGS = dict.fromkeys(SIZES, default_cfg((3, 224, 224), 32))


def _create(size: str, variant: str, group: str, pretrained: bool, **kwargs: Any) -> GCSAPyramid:
    arguments = {**SIZES[size], "separable": True, "layer_scale": 1e-4, "group": group, **kwargs}
    if "fields" not in kwargs:
        order = make_group(group).order
        stages = zip(SIZES[size]["fields"], SIZES[size]["heads"], strict=True)
        arguments["fields"] = tuple(fields_for(fields, order, heads) for fields, heads in stages)
    feature_cfg = dict(out_indices=tuple(range(len(arguments["depths"]))), feature_cls="getter")
    return build_model_with_cfg(GCSAPyramid, variant, pretrained, feature_cfg=feature_cfg, **arguments)


register_family(__name__, _create, DEFAULT_GROUPS, CFGS)
