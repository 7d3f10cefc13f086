"""Isotropic G-CSA vision transformers.

Group Convolutional Self-Attention for Roto-Translation Equivariance in ViTs (Zaheer, Holston, Park): a lifting
stem, then blocks of group convolutional self-attention on one resolution, and an invariant head. `gcsa_tiny` is
for 28 x 28, `gcsa_small` for 96 x 96, `gcsa_base` for 224 x 224; `gcsa_linear_*` estimate the attention by random
features, exactly equivariant all the same. `gcsa_ocr_*` are encoders of text lines 40 pixels high and of any length
(gcsa.ocr).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from timm.models import build_model_with_cfg

from gcsa.groups import group as make_group
from gcsa.layers.block import Block, Stem
from gcsa.models.backbone import Backbone, fields_for
from gcsa.models.registry import default_cfg, register_family


class GCSA(Backbone):
    """Isotropic G-CSA transformer.

    Args:
        group: "c" or "d" and a number of rotations.
        fields: regular fields C; the width in channels is |H| C.
        depth, heads: blocks, and attention heads (must divide `fields`).
        stem_strides: one convolution each; images must be multiples of their product.
        head_fields: fields of the 1 x 1 group convolution in front of the pooling (0: no such layer).
        global_pool: "avg", "max" (over the group) or "".
        drop_rate, proj_drop_rate, drop_path_rate: of classifier inputs, whole fields, and residual branches.
        img_size: only checked against the strides; the model takes any size that they divide.
        block: further arguments of `Block` and `GroupConvSelfAttention` (attention, radius, shape, features,
            kernel_size, separable, kv_stride, mlp_ratio, layer_scale).
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        group: str = "c8",
        fields: int = 12,
        depth: int = 4,
        heads: int = 2,
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
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, not {depth}")
        h = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        block = dict(proj_drop=proj_drop_rate, padding_mode=padding_mode, **block, **factory)
        rates = [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]
        stride = math.prod(stem_strides)
        super().__init__(
            h,
            Stem(in_chans, fields, h, stem_strides, padding_mode, **factory),
            [Block(fields, heads, h, drop_path=rate, **block) for rate in rates],
            [dict(num_chs=fields * h.order, reduction=stride, module=f"stages.{i}") for i in range(depth)],
            fields,
            num_classes,
            in_chans,
            img_size,
            dict(hidden_fields=head_fields, pool=global_pool, drop_rate=drop_rate),
            factory,
        )


# Fields at order 8; other groups get the number that keeps the parameters (`fields_for`).
SIZES: dict[str, dict[str, Any]] = {
    "gcsa_tiny": dict(fields=12, depth=3, heads=2, stem_strides=(1, 2, 1, 2), head_fields=64, mlp_ratio=2),
    "gcsa_small": dict(fields=16, depth=6, heads=4, stem_strides=(2, 2, 1, 2), head_fields=128, mlp_ratio=2),
    "gcsa_base": dict(fields=128, depth=12, heads=8, stem_strides=(4, 4), separable=True, layer_scale=1e-4),
    "gcsa_ocr_tiny": dict(fields=23, depth=3, heads=4, stem_strides=(2, 2, 2), separable=True, mlp_ratio=2),
    "gcsa_ocr_small": dict(fields=34, depth=6, heads=4, stem_strides=(2, 2, 2), separable=True, mlp_ratio=2),
}
DEFAULT_GROUPS = {
    "gcsa_tiny": "c8",
    "gcsa_small": "d4",
    "gcsa_base": "c4",
    "gcsa_ocr_tiny": "c4",
    "gcsa_ocr_small": "c4",
}

CFGS = {
    "gcsa_tiny": default_cfg((1, 28, 28), 4, num_classes=10),
    "gcsa_small": default_cfg((3, 96, 96), 8, num_classes=2),
    "gcsa_base": default_cfg((3, 224, 224), 16),
    "gcsa_ocr_tiny": default_cfg((1, 40, 480), 8),
    "gcsa_ocr_small": default_cfg((1, 40, 480), 8),
}

# The same sizes at a cost that grows linearly with the tokens.
for _size in ("tiny", "small"):
    SIZES[f"gcsa_linear_{_size}"] = dict(SIZES[f"gcsa_{_size}"], attention="linear")
    DEFAULT_GROUPS[f"gcsa_linear_{_size}"] = DEFAULT_GROUPS[f"gcsa_{_size}"]
    CFGS[f"gcsa_linear_{_size}"] = CFGS[f"gcsa_{_size}"]


def _create(size: str, variant: str, group: str, pretrained: bool, **kwargs: Any) -> GCSA:
    arguments = {**SIZES[size], "group": group, **kwargs}
    if "fields" not in kwargs:
        arguments["fields"] = fields_for(SIZES[size]["fields"], make_group(group).order, SIZES[size]["heads"])
    feature_cfg = dict(out_indices=tuple(range(arguments["depth"])), feature_cls="getter")
    return build_model_with_cfg(GCSA, variant, pretrained, feature_cfg=feature_cfg, **arguments)


register_family(__name__, _create, DEFAULT_GROUPS, CFGS, bare=("gcsa_ocr_tiny", "gcsa_ocr_small"))
