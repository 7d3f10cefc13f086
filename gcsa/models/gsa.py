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
from timm.models import build_model_with_cfg, register_model
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.blocks import FieldMlp, mlp_width
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.norm import FieldNorm
from gcsa.layers.relative_attention import LiftingSelfAttention, RelativeSelfAttention
from gcsa.layers.windows import check_window_size
from gcsa.models.backbone import Isotropic, features_of, fields_for
from gcsa.models.registry import default_cfg, with_groups


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
        self.mlp = FieldMlp(fields, mlp_width(fields, mlp_ratio), group, proj_drop, **factory)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class GSA(Isotropic):
    """G-SA transformer.

    Args:
        group: "c" or "d" and a number of rotations.
        encoding: "corrected" or "gevit", or "original", with which the model is not equivariant.
        radius: of the blocks' neighbourhoods in positions; "all": all positions.
        lift_radius, lift_heads: of the lifting self-attention, in pixels; lift_heads must divide `fields`.
        stride: pixels a side that the stem averages to one position.
        waves: hidden numbers of the spatial encodings.
        mlp_ratio: hidden fields of the MLP, as a multiple of `fields`.
        The others are as in `GCSA`.

    Raises:
        ValueError: an argument of a wrong type or range; in forward, an image whose sides are no multiples of the
            stride, or whose map is smaller than the radius.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        group: str = "c4",
        encoding: str = "corrected",
        radius: int | str | None = "all",
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
        h = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        attention = dict(encoding=encoding, radius=radius, waves=waves)
        super().__init__(
            h,
            lambda: LiftingStem(in_chans, fields, lift_heads, h, lift_radius, stride, waves, factory),
            lambda _, rate: RelativeBlock(fields, heads, h, mlp_ratio, rate, proj_drop_rate, factory, **attention),
            fields,
            depth,
            stride,
            drop_path_rate,
            num_classes=num_classes,
            in_chans=in_chans,
            head_fields=head_fields,
            global_pool=global_pool,
            drop_rate=drop_rate,
            img_size=img_size,
            **factory,
        )

    def check_input_size(self, height: int, width: int) -> None:
        """As in `Backbone`; also ValueError for an image smaller than the lifting's neighbourhood."""
        super().check_input_size(height, width)
        check_window_size(self.stem.attn.radius, height, width)  # type: ignore[union-attr]


# Fields at order 8; other groups get the number that keeps the parameters (`fields_for`).
TINY: dict[str, Any] = dict(fields=12, depth=3, heads=2, stride=4, head_fields=64)
SIZES: dict[str, dict[str, Any]] = {
    "gsa_tiny": TINY,
    "gsa_small": dict(fields=16, depth=6, heads=4, radius=2, stride=8, head_fields=128),
    "z2sa_tiny": {**TINY, "fields": 10},  # as many parameters as gsa_tiny
}

default_cfgs = with_groups(
    {
        "gsa_tiny": default_cfg((1, 28, 28), 4, num_classes=10, first_conv="stem.attn.qkv"),
        "gsa_small": default_cfg((3, 96, 96), 8, num_classes=2, first_conv="stem.attn.qkv"),
        "z2sa_tiny": default_cfg((1, 28, 28), 4, num_classes=10, first_conv="stem.attn.qkv"),
    },
    bare=("z2sa_tiny",),
)


def _create(name: str, size: str, group: str, pretrained: bool, kwargs: dict[str, Any]) -> GSA:
    arguments = {**SIZES[size], "group": group, **kwargs}
    if "fields" not in kwargs:
        # Whole heads of the lifting, whose number the heads of the blocks divide.
        arguments["fields"] = fields_for(SIZES[size]["fields"], make_group(arguments["group"]).order, heads=4)
    feature_cfg = features_of(arguments["depth"])
    return build_model_with_cfg(GSA, name, pretrained, feature_cfg=feature_cfg, **arguments)


@register_model
def gsa_tiny(pretrained: bool = False, **kwargs: Any) -> GSA:
    """G-SA for 28 x 28 images, at most 100k parameters."""
    return _create("gsa_tiny", "gsa_tiny", "c4", pretrained, kwargs)


@register_model
def gsa_tiny_c4(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_tiny` of c4."""
    return _create("gsa_tiny_c4", "gsa_tiny", "c4", pretrained, kwargs)


@register_model
def gsa_tiny_c8(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_tiny` of c8."""
    return _create("gsa_tiny_c8", "gsa_tiny", "c8", pretrained, kwargs)


@register_model
def gsa_tiny_d4(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_tiny` of d4."""
    return _create("gsa_tiny_d4", "gsa_tiny", "d4", pretrained, kwargs)


@register_model
def gsa_tiny_d8(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_tiny` of d8."""
    return _create("gsa_tiny_d8", "gsa_tiny", "d8", pretrained, kwargs)


@register_model
def gsa_small(pretrained: bool = False, **kwargs: Any) -> GSA:
    """G-SA for 96 x 96 images."""
    return _create("gsa_small", "gsa_small", "c4", pretrained, kwargs)


@register_model
def gsa_small_c4(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_small` of c4."""
    return _create("gsa_small_c4", "gsa_small", "c4", pretrained, kwargs)


@register_model
def gsa_small_c8(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_small` of c8."""
    return _create("gsa_small_c8", "gsa_small", "c8", pretrained, kwargs)


@register_model
def gsa_small_d4(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_small` of d4."""
    return _create("gsa_small_d4", "gsa_small", "d4", pretrained, kwargs)


@register_model
def gsa_small_d8(pretrained: bool = False, **kwargs: Any) -> GSA:
    """`gsa_small` of d8."""
    return _create("gsa_small_d8", "gsa_small", "d8", pretrained, kwargs)


@register_model
def z2sa_tiny(pretrained: bool = False, **kwargs: Any) -> GSA:
    """Self-attention on Z^2 with relative encodings, for 28 x 28 images."""
    return _create("z2sa_tiny", "z2sa_tiny", "c1", pretrained, kwargs)
