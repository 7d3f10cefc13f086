"""Steerable residual networks: the convolutional counterpart of `gcsa_*`, and the poster's first "future work".

Group convolutions in pre-activation residual blocks (`ResidualBlock`), as in Weiler and Cesa 2019, General
E(2)-Equivariant Steerable CNNs (arXiv:1911.08251). Stem, resolution, norm and head are
those of `GCSA`, so that what differs between the two families is attention alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model

from gcsa.groups import group as make_group
from gcsa.layers.blocks import ResidualBlock
from gcsa.layers.stem import Stem
from gcsa.models.backbone import Isotropic, features_of, fields_for, total_stride
from gcsa.models.registry import default_cfg, with_groups


class GCNN(Isotropic):
    """Isotropic steerable residual network.

    Args:
        group: "c" or "d" and a number of rotations.
        fields: regular fields C; the width in channels is |H| C.
        depth: residual blocks, of two convolutions each.
        kernel_size: side of their kernels in pixels.
        The others are as in `GCSA`.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        group: str = "c8",
        fields: int = 12,
        depth: int = 4,
        kernel_size: int = 3,
        stem_strides: Sequence[int] = (2, 2),
        padding_mode: str = "zeros",
        head_fields: int = 0,
        global_pool: str = "max",
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        centred: bool = False,
        basis: str = "band",
        stem_norm: str = "layer",
        low_pass: bool = True,
        stem_separable: bool = False,
        positions: bool = False,
        stem_fields: Sequence[int] | None = None,
        img_size: int | tuple[int, int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        h = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        conv: dict[str, Any] = {"padding_mode": padding_mode, "basis": basis}
        stem: dict[str, Any] = {
            "widths": stem_fields,
            "norm": stem_norm,
            "low_pass": low_pass,
            "separable": stem_separable,
            "positions": positions,
            **conv,
        }
        block = dict(kernel_size=kernel_size, proj_drop=proj_drop_rate, **conv, **factory)
        super().__init__(
            h,
            lambda: Stem(in_chans, fields, h, stem_strides, **stem, **factory),
            lambda _, rate: ResidualBlock(fields, h, drop_path=rate, **block),
            fields,
            depth,
            total_stride(stem_strides),
            drop_path_rate,
            num_classes=num_classes,
            in_chans=in_chans,
            head_fields=head_fields,
            global_pool=global_pool,
            drop_rate=drop_rate,
            centred=centred,
            img_size=img_size,
            **factory,
        )


# Fields at order 8; other groups get the number that keeps the parameters (`fields_for`). Stems and heads are those
# of the gcsa model of the same size.
SIZES: dict[str, dict[str, Any]] = {
    "gcnn_tiny": dict(fields=12, depth=5, stem_strides=(1, 2, 1, 2), head_fields=64),
    "gcnn_small": dict(fields=16, depth=11, stem_strides=(2, 2, 1, 2), stem_norm="batch", head_fields=128),
}

default_cfgs = with_groups(
    {
        "gcnn_tiny": default_cfg((1, 28, 28), 4, num_classes=10),
        "gcnn_small": default_cfg((3, 96, 96), 8, num_classes=2),
    }
)


def _create(name: str, size: str, group: str, pretrained: bool, kwargs: dict[str, Any]) -> GCNN:
    arguments = {**SIZES[size], "group": group, **kwargs}
    if "fields" not in kwargs:
        arguments["fields"] = fields_for(SIZES[size]["fields"], make_group(arguments["group"]).order, heads=1)
    feature_cfg = features_of(arguments["depth"])
    return build_model_with_cfg(GCNN, name, pretrained, feature_cfg=feature_cfg, **arguments)


@register_model
def gcnn_tiny(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """Steerable residual network for 28 x 28 images, at most 100k parameters."""
    return _create("gcnn_tiny", "gcnn_tiny", "c8", pretrained, kwargs)


@register_model
def gcnn_tiny_c4(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_tiny` of c4."""
    return _create("gcnn_tiny_c4", "gcnn_tiny", "c4", pretrained, kwargs)


@register_model
def gcnn_tiny_c8(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_tiny` of c8."""
    return _create("gcnn_tiny_c8", "gcnn_tiny", "c8", pretrained, kwargs)


@register_model
def gcnn_tiny_d4(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_tiny` of d4."""
    return _create("gcnn_tiny_d4", "gcnn_tiny", "d4", pretrained, kwargs)


@register_model
def gcnn_tiny_d8(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_tiny` of d8."""
    return _create("gcnn_tiny_d8", "gcnn_tiny", "d8", pretrained, kwargs)


@register_model
def gcnn_small(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """Steerable residual network for 96 x 96 images, at most 2M parameters."""
    return _create("gcnn_small", "gcnn_small", "d4", pretrained, kwargs)


@register_model
def gcnn_small_c4(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_small` of c4."""
    return _create("gcnn_small_c4", "gcnn_small", "c4", pretrained, kwargs)


@register_model
def gcnn_small_c8(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_small` of c8."""
    return _create("gcnn_small_c8", "gcnn_small", "c8", pretrained, kwargs)


@register_model
def gcnn_small_d4(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_small` of d4."""
    return _create("gcnn_small_d4", "gcnn_small", "d4", pretrained, kwargs)


@register_model
def gcnn_small_d8(pretrained: bool = False, **kwargs: Any) -> GCNN:
    """`gcnn_small` of d8."""
    return _create("gcnn_small_d8", "gcnn_small", "d8", pretrained, kwargs)
