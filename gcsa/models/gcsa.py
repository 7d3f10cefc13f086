"""Isotropic G-CSA vision transformers.

Group Convolutional Self-Attention for Roto-Translation Equivariance in ViTs (Zaheer, Holston, Park): a lifting stem, then
blocks of group convolutional self-attention on one resolution, and an invariant head. `gcsa_tiny` is for 28 x 28,
`gcsa_small` for 96 x 96, `gcsa_base` for 224 x 224. `gcsa_linear_*` estimate the attention by random features, exactly
equivariant all the same. `gcsa_pooled_*` pool over the group behind the stem, so that their blocks are on scalar fields
(docs/adr/0018). `gcsa_hybrid_*` have blocks of convolutions in front (docs/adr/0022). `gcsa_ocr_*` are encoders of text
lines 40 pixels high and of any length (gcsa.tasks.recognition).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import group as make_group
from gcsa.layers.blocks import Block, ResidualBlock
from gcsa.layers.checks import check_heads, check_whole
from gcsa.layers.stem import Stem
from gcsa.models.backbone import Isotropic, features_of, fields_for, total_stride
from gcsa.models.registry import default_cfg, with_groups, with_trained

OF_SCALAR_FIELDS: dict[str, Any] = dict(kernel_size=1, separable=False, kv_stride=1)
"""The convolutions of blocks on scalar fields: a larger filter of theirs may not tell directions apart."""


class GCSA(Isotropic):
    """Isotropic G-CSA transformer.

    Args:
        num_classes, in_chans, head_fields, global_pool, drop_rate, centred, img_size: as in `Backbone`.
        group: "c" or "d" and a number of rotations.
        fields: regular fields C; the width in channels is |H| C.
        scalar_fields: where above 0, the stem ends in a `GroupPooling`, and the blocks are on that many scalar fields.
            Features are then (B, scalar_fields, H / s, W / s) and turn with the image. Such blocks have 1 x 1
            convolutions, so without `positions` or a `radius` they do not know where anything is; "spatial" and "group"
            attention are the same, and so are global_pool "avg" and "max".
        depth, heads: blocks of attention, and their heads (must divide the fields of the blocks).
        conv_depth: blocks of a steerable CNN (`ResidualBlock`, 3 x 3) in front of them (docs/adr/0022). With
            scalar_fields they are the end of the stem, in front of the pooling, and have neither dropout nor stochastic depth.
        stem_strides: one convolution each; images must be multiples of their product.
        padding_mode: "zeros", or "circular" for exact cyclic shifts.
        basis: of the k x k filters, as in `SteerableConv2d`.
        stem_fields, stem_norm, low_pass, stem_separable, positions: `widths`, `norm`, ... of the `Stem`.
        proj_drop_rate, drop_path_rate: dropout of whole fields, and of residual branches (rising from 0 to this).
        block: further arguments of `Block` and `GroupConvSelfAttention` (attention, radius, shape, features,
            kernel_size, separable, kv_stride, mlp_ratio, layer_scale). timm's `create_model` leaves out arguments that
            are None, so radius="all" and layer_scale=0 say what None does elsewhere.

    Raises:
        ValueError: an argument that no layer takes, or of a wrong type or range; larger filters together with
            scalar_fields; in forward, an image whose sides are no multiples of the strides, or whose map is smaller than the
            radius.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        group: str = "c8",
        fields: int = 12,
        scalar_fields: int = 0,
        depth: int = 4,
        conv_depth: int = 0,
        heads: int = 2,
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
        **block: Any,
    ) -> None:
        check_whole(0, scalar_fields=scalar_fields, conv_depth=conv_depth)
        check_whole(depth=depth)
        h = make_group(group)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        conv: dict[str, Any] = {"padding_mode": padding_mode, "basis": basis}
        # A larger filter of scalar fields may not tell directions apart, so convolutions stand in front of the pooling.
        in_stem, in_front = (conv_depth, 0) if scalar_fields else (0, conv_depth)
        stem: dict[str, Any] = dict(widths=stem_fields, norm=stem_norm, low_pass=low_pass, separable=stem_separable)
        stem |= dict(positions=positions, depth=in_stem, scalar_fields=scalar_fields, **conv)
        width, fibre = (scalar_fields, make_group("c1")) if scalar_fields else (fields, h)
        check_heads(width, heads, "scalar_fields" if scalar_fields else "fields")
        for key, only in OF_SCALAR_FIELDS.items() if scalar_fields else ():
            if block.setdefault(key, only) != only:
                raise UserError(f"{key}={block[key]} is for regular fields: set {key}={only} or scalar_fields=0")
        shared: dict[str, Any] = dict(proj_drop=proj_drop_rate, **conv, **factory)

        def make_block(i: int, rate: float) -> nn.Module:
            if i < in_front:
                return ResidualBlock(width, fibre, drop_path=rate, **shared)
            return Block(width, heads, fibre, drop_path=rate, **shared, **block)

        super().__init__(
            h,
            lambda: Stem(in_chans, fields, h, stem_strides, **stem, **factory),
            make_block,
            width,
            in_front + depth,
            total_stride(stem_strides),
            drop_path_rate,
            fibre=fibre,
            num_classes=num_classes,
            in_chans=in_chans,
            head_fields=head_fields,
            global_pool=global_pool,
            drop_rate=drop_rate,
            centred=centred,
            img_size=img_size,
            **factory,
        )


TINY: dict[str, Any] = dict(fields=12, depth=3, heads=2, stem_strides=(1, 2, 1, 2), head_fields=64, mlp_ratio=2)
SMALL: dict[str, Any] = dict(fields=16, depth=6, heads=4, stem_strides=(2, 2, 1, 2), head_fields=128, mlp_ratio=2)
SMALL |= dict(stem_norm="batch")  # docs/adr/0017
POOLED: dict[str, Any] = dict(fields=16, scalar_fields=96, depth=4, heads=4, mlp_ratio=2, stem_norm="batch")
POOLED |= dict(stem_strides=(2, 2, 2), stem_fields=(24, 8), stem_separable=True, low_pass=False)

# Fields at order 8; other groups get the number that keeps the parameters (`fields_for`).
SIZES: dict[str, dict[str, Any]] = {
    "gcsa_tiny": TINY,
    "gcsa_small": SMALL,
    "gcsa_base": dict(fields=128, depth=12, heads=8, stem_strides=(4, 4), separable=True, layer_scale=1e-4),
    "gcsa_linear_tiny": dict(TINY, attention="linear"),
    "gcsa_linear_small": dict(SMALL, attention="linear"),
    "gcsa_pooled_small": POOLED,
    "gcsa_hybrid_tiny": dict(TINY, conv_depth=4, depth=1),
    "gcsa_hybrid_small": dict(POOLED, conv_depth=3, depth=1),
    "gcsa_ocr_tiny": dict(fields=23, depth=3, heads=4, stem_strides=(2, 2, 2), separable=True, mlp_ratio=2),
    "gcsa_ocr_small": dict(fields=34, depth=6, heads=4, stem_strides=(2, 2, 2), separable=True, mlp_ratio=2),
}

default_cfgs = with_groups(
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
    bare=("gcsa_hybrid_tiny", "gcsa_hybrid_small", "gcsa_ocr_tiny", "gcsa_ocr_small"),
)


def encoder_of(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """`state`, or where it is that of a recogniser of text, of its encoder, with the head that `model` has: for timm."""
    encoder = {name.removeprefix("encoder."): part for name, part in state.items() if name.startswith("encoder.")}
    head = {name: part for name, part in model.state_dict().items() if name.startswith("head.")}
    return {**head, **encoder} if encoder else state


def _create(name: str, size: str, group: str, pretrained: bool, kwargs: dict[str, Any]) -> GCSA:
    kwargs, options = with_trained(name, pretrained, kwargs)
    arguments = {**SIZES[size], "group": group, **kwargs}
    order, heads = make_group(arguments["group"]).order, SIZES[size]["heads"]
    if arguments.get("scalar_fields"):  # which the heads divide, and which have no larger filters
        heads = 1
        arguments = {key: value for key, value in arguments.items() if key in kwargs or key not in OF_SCALAR_FIELDS}
    if "fields" not in kwargs:
        arguments["fields"] = fields_for(SIZES[size]["fields"], order, heads)
    if "stem_fields" not in kwargs and "stem_fields" in arguments:
        arguments["stem_fields"] = tuple(fields_for(fields, order, 1) for fields in arguments["stem_fields"])
    in_front = 0 if arguments.get("scalar_fields") else arguments.get("conv_depth", 0)
    features = features_of(arguments["depth"], in_front)
    loading: dict[str, Any] = dict(feature_cfg=features, pretrained_filter_fn=encoder_of)
    model = build_model_with_cfg(GCSA, name, pretrained, **loading, **arguments)
    # timm writes these into the folders of weights, with what the caller asked for.
    vars(model)["_model_args"] = options
    return model


@register_model
def gcsa_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """G-CSA for 28 x 28 images, at most 100k parameters."""
    return _create("gcsa_tiny", "gcsa_tiny", "c8", pretrained, kwargs)


@register_model
def gcsa_tiny_c4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` of c4."""
    return _create("gcsa_tiny_c4", "gcsa_tiny", "c4", pretrained, kwargs)


@register_model
def gcsa_tiny_c8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` of c8."""
    return _create("gcsa_tiny_c8", "gcsa_tiny", "c8", pretrained, kwargs)


@register_model
def gcsa_tiny_d4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` of d4."""
    return _create("gcsa_tiny_d4", "gcsa_tiny", "d4", pretrained, kwargs)


@register_model
def gcsa_tiny_d8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` of d8."""
    return _create("gcsa_tiny_d8", "gcsa_tiny", "d8", pretrained, kwargs)


@register_model
def gcsa_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """G-CSA for 96 x 96 images, at most 2M parameters."""
    return _create("gcsa_small", "gcsa_small", "d4", pretrained, kwargs)


@register_model
def gcsa_small_c4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_small` of c4."""
    return _create("gcsa_small_c4", "gcsa_small", "c4", pretrained, kwargs)


@register_model
def gcsa_small_c8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_small` of c8."""
    return _create("gcsa_small_c8", "gcsa_small", "c8", pretrained, kwargs)


@register_model
def gcsa_small_d4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_small` of d4."""
    return _create("gcsa_small_d4", "gcsa_small", "d4", pretrained, kwargs)


@register_model
def gcsa_small_d8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_small` of d8."""
    return _create("gcsa_small_d8", "gcsa_small", "d8", pretrained, kwargs)


@register_model
def gcsa_base(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """G-CSA for 224 x 224 images, of the size of ViT-S."""
    return _create("gcsa_base", "gcsa_base", "c4", pretrained, kwargs)


@register_model
def gcsa_base_c4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_base` of c4."""
    return _create("gcsa_base_c4", "gcsa_base", "c4", pretrained, kwargs)


@register_model
def gcsa_base_c8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_base` of c8."""
    return _create("gcsa_base_c8", "gcsa_base", "c8", pretrained, kwargs)


@register_model
def gcsa_base_d4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_base` of d4."""
    return _create("gcsa_base_d4", "gcsa_base", "d4", pretrained, kwargs)


@register_model
def gcsa_base_d8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_base` of d8."""
    return _create("gcsa_base_d8", "gcsa_base", "d8", pretrained, kwargs)


@register_model
def gcsa_linear_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` with attention at a cost linear in the tokens."""
    return _create("gcsa_linear_tiny", "gcsa_linear_tiny", "c8", pretrained, kwargs)


@register_model
def gcsa_linear_tiny_c4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_tiny` of c4."""
    return _create("gcsa_linear_tiny_c4", "gcsa_linear_tiny", "c4", pretrained, kwargs)


@register_model
def gcsa_linear_tiny_c8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_tiny` of c8."""
    return _create("gcsa_linear_tiny_c8", "gcsa_linear_tiny", "c8", pretrained, kwargs)


@register_model
def gcsa_linear_tiny_d4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_tiny` of d4."""
    return _create("gcsa_linear_tiny_d4", "gcsa_linear_tiny", "d4", pretrained, kwargs)


@register_model
def gcsa_linear_tiny_d8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_tiny` of d8."""
    return _create("gcsa_linear_tiny_d8", "gcsa_linear_tiny", "d8", pretrained, kwargs)


@register_model
def gcsa_linear_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_small` with attention at a cost linear in the tokens."""
    return _create("gcsa_linear_small", "gcsa_linear_small", "d4", pretrained, kwargs)


@register_model
def gcsa_linear_small_c4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_small` of c4."""
    return _create("gcsa_linear_small_c4", "gcsa_linear_small", "c4", pretrained, kwargs)


@register_model
def gcsa_linear_small_c8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_small` of c8."""
    return _create("gcsa_linear_small_c8", "gcsa_linear_small", "c8", pretrained, kwargs)


@register_model
def gcsa_linear_small_d4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_small` of d4."""
    return _create("gcsa_linear_small_d4", "gcsa_linear_small", "d4", pretrained, kwargs)


@register_model
def gcsa_linear_small_d8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_linear_small` of d8."""
    return _create("gcsa_linear_small_d8", "gcsa_linear_small", "d8", pretrained, kwargs)


@register_model
def gcsa_pooled_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """For 96 x 96 images of tissue or small objects: attention between scalar fields."""
    return _create("gcsa_pooled_small", "gcsa_pooled_small", "d4", pretrained, kwargs)


@register_model
def gcsa_pooled_small_c4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_pooled_small` of c4."""
    return _create("gcsa_pooled_small_c4", "gcsa_pooled_small", "c4", pretrained, kwargs)


@register_model
def gcsa_pooled_small_c8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_pooled_small` of c8."""
    return _create("gcsa_pooled_small_c8", "gcsa_pooled_small", "c8", pretrained, kwargs)


@register_model
def gcsa_pooled_small_d4(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_pooled_small` of d4."""
    return _create("gcsa_pooled_small_d4", "gcsa_pooled_small", "d4", pretrained, kwargs)


@register_model
def gcsa_pooled_small_d8(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_pooled_small` of d8."""
    return _create("gcsa_pooled_small_d8", "gcsa_pooled_small", "d8", pretrained, kwargs)


@register_model
def gcsa_hybrid_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_tiny` with four blocks of convolutions in front of one of attention, at most 100k parameters."""
    return _create("gcsa_hybrid_tiny", "gcsa_hybrid_tiny", "c8", pretrained, kwargs)


@register_model
def gcsa_hybrid_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """`gcsa_pooled_small` with three blocks of convolutions in front of the pooling and one of attention behind it."""
    return _create("gcsa_hybrid_small", "gcsa_hybrid_small", "d4", pretrained, kwargs)


@register_model
def gcsa_ocr_tiny(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """Encoder of text lines 40 pixels high, about 0.13M parameters."""
    return _create("gcsa_ocr_tiny", "gcsa_ocr_tiny", "c4", pretrained, kwargs)


@register_model
def gcsa_ocr_small(pretrained: bool = False, **kwargs: Any) -> GCSA:
    """Encoder of text lines 40 pixels high, about 0.5M parameters."""
    return _create("gcsa_ocr_small", "gcsa_ocr_small", "c4", pretrained, kwargs)
