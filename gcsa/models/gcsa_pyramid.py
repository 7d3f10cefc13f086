"""Four-stage G-CSA vision transformers for 224 x 224 and for dense tasks.

G-CSA (Zaheer, Holston, Park) in the pyramid that detection and segmentation heads expect: feature maps at 1/4, 1/8,
1/16 and 1/32. The two large maps attend to a neighbourhood, the two small ones to everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import group as make_group
from gcsa.layers.blocks import Block
from gcsa.layers.checks import check_rate, check_sequence
from gcsa.layers.stem import Downsample, Stem
from gcsa.models.backbone import Backbone, features_of, fields_for, total_stride
from gcsa.models.registry import default_cfg, with_groups

FEATURE_MAPS = ("regular", "invariant")


class GCSAPyramid(Backbone):
    """G-CSA transformer of four stages, each at half the resolution of the one before; the first is at 1/4.

    Args:
        group: "c" or "d" and a number of rotations.
        fields, depths, heads, radii: for each stage, regular fields C, blocks, attention heads, and the radius of
            the neighbourhood in positions ("all": everywhere).
        feature_maps: what timm's `features_only` and `forward_intermediates` give of each stage. "regular": its fields,
            (B, N * C, h, w), whose channels change places when the image turns. "invariant": their maximum over the
            group, as in `GroupPooling`, (B, C, h, w), which turns with the image and keeps its values, for decoders of
            other libraries. Features and logits are the same with both.
        output_stride: of the last stage, and only to be checked: no stage is dilated.
        The others are as in `GCSA`; a `radius` among them is for every stage.

    Raises:
        ValueError: as `GCSA`, for lists of different lengths, unknown feature_maps and another output_stride.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        group: str = "c4",
        fields: Sequence[int] = (16, 32, 64, 128),
        depths: Sequence[int] = (2, 2, 6, 2),
        heads: Sequence[int] = (1, 2, 4, 8),
        radii: Sequence[int | str | None] = (3, 3, "all", "all"),
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
        feature_maps: str = "regular",
        output_stride: int | None = None,
        img_size: int | tuple[int, int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **block: Any,
    ) -> None:
        check_sequence(fields=fields, depths=depths, heads=heads)
        if isinstance(radii, str) or not len(fields) == len(depths) == len(heads) == len(radii):
            raise UserError(
                f"fields, depths, heads and radii need one entry a stage each, not {len(fields)}, {len(depths)}, "
                f"{len(heads)} and {len(radii)}"
            )
        check_rate(drop_path_rate=drop_path_rate)
        if feature_maps not in FEATURE_MAPS:
            raise UserError(f"unknown feature_maps {feature_maps!r}: choose one of {', '.join(FEATURE_MAPS)}")
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
        block = {"proj_drop": proj_drop_rate, **conv, **block, **factory}
        stride = total_stride(stem_strides)
        reductions = [stride * 2**i for i in range(len(fields))]
        if output_stride not in (None, reductions[-1]):
            raise UserError(
                f"output_stride={output_stride} needs dilated stages, and a pyramid has none (its last stage is at "
                f"{reductions[-1]}): use a decoder without it, of all feature maps, such as a U-Net, an FPN or Segformer"
            )
        shown = 1 if feature_maps == "invariant" else h.order
        rates = iter(drop_path_rate * i / max(sum(depths) - 1, 1) for i in range(sum(depths)))

        def stage(i: int) -> nn.Module:
            layers: list[nn.Module] = []
            if i > 0:
                layers.append(Downsample(fields[i - 1], fields[i], h, padding_mode, basis, **factory))
            near = {} if radii[i] in (None, "all") else {"radius": radii[i]}  # which not every attention takes
            arguments = {**near, **block}
            layers += [Block(fields[i], heads[i], h, drop_path=next(rates), **arguments) for _ in range(depths[i])]
            return nn.Sequential(*layers)

        super().__init__(
            h,
            lambda: Stem(in_chans, fields[0], h, stem_strides, **stem, **factory),
            lambda: [stage(i) for i in range(len(fields))],
            [
                dict(num_chs=width * shown, reduction=reduction, module=f"stages.{i}")
                for i, (width, reduction) in enumerate(zip(fields, reductions, strict=True))
            ],
            fields[-1],
            num_classes=num_classes,
            in_chans=in_chans,
            head_fields=head_fields,
            global_pool=global_pool,
            drop_rate=drop_rate,
            centred=centred,
            img_size=img_size,
            **factory,
        )
        self.feature_maps = feature_maps

    def as_map(self, x: Tensor) -> Tensor:
        """What `forward_intermediates` gives of a stage's (B, h, w, N, C): (B, N * C, h, w), or (B, C, h, w) where
        `feature_maps` is "invariant"."""
        return super().as_map(x.amax(3, keepdim=True) if self.feature_maps == "invariant" else x)


# Fields at order 8; other groups get the number that keeps the parameters (`fields_for`).
SIZES: dict[str, dict[str, Any]] = {
    "gcsa_pyramid_tiny": dict(fields=(8, 16, 32, 64), depths=(2, 2, 4, 2), heads=(1, 2, 4, 8)),
    "gcsa_pyramid_small": dict(fields=(16, 32, 80, 160), depths=(2, 2, 8, 2), heads=(1, 2, 5, 10)),
    "gcsa_pyramid_base": dict(fields=(24, 48, 128, 256), depths=(2, 3, 12, 3), heads=(1, 3, 8, 16)),
}

default_cfgs = with_groups(dict.fromkeys(SIZES, default_cfg((3, 224, 224), 32)))


def _create(name: str, size: str, group: str, pretrained: bool, kwargs: dict[str, Any]) -> GCSAPyramid:
    arguments = {**SIZES[size], "separable": True, "layer_scale": 1e-4, "group": group, **kwargs}
    if "fields" not in kwargs:
        order = make_group(arguments["group"]).order
        stages = zip(SIZES[size]["fields"], SIZES[size]["heads"], strict=True)
        arguments["fields"] = tuple(fields_for(fields, order, heads) for fields, heads in stages)
    check_sequence(depths=arguments["depths"])
    if kwargs.get("attention") == "linear":  # which has no neighbourhoods
        arguments.setdefault("radii", ("all",) * len(arguments["depths"]))
    if arguments.get("feature_maps") == "invariant" and arguments.get("feature_cls", "getter") != "getter":
        raise UserError(
            f"feature_cls={arguments['feature_cls']!r} takes a stage's own output, not feature_maps='invariant': "
            "leave out feature_cls"
        )
    feature_cfg = features_of(len(arguments["depths"]))
    return build_model_with_cfg(GCSAPyramid, name, pretrained, feature_cfg=feature_cfg, **arguments)


@register_model
def gcsa_pyramid_tiny(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """Four stages, the smallest."""
    return _create("gcsa_pyramid_tiny", "gcsa_pyramid_tiny", "c4", pretrained, kwargs)


@register_model
def gcsa_pyramid_tiny_c4(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_tiny` of c4."""
    return _create("gcsa_pyramid_tiny_c4", "gcsa_pyramid_tiny", "c4", pretrained, kwargs)


@register_model
def gcsa_pyramid_tiny_c8(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_tiny` of c8."""
    return _create("gcsa_pyramid_tiny_c8", "gcsa_pyramid_tiny", "c8", pretrained, kwargs)


@register_model
def gcsa_pyramid_tiny_d4(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_tiny` of d4."""
    return _create("gcsa_pyramid_tiny_d4", "gcsa_pyramid_tiny", "d4", pretrained, kwargs)


@register_model
def gcsa_pyramid_tiny_d8(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_tiny` of d8."""
    return _create("gcsa_pyramid_tiny_d8", "gcsa_pyramid_tiny", "d8", pretrained, kwargs)


@register_model
def gcsa_pyramid_small(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """Four stages, of the size of a ResNet-18."""
    return _create("gcsa_pyramid_small", "gcsa_pyramid_small", "c4", pretrained, kwargs)


@register_model
def gcsa_pyramid_small_c4(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_small` of c4."""
    return _create("gcsa_pyramid_small_c4", "gcsa_pyramid_small", "c4", pretrained, kwargs)


@register_model
def gcsa_pyramid_small_c8(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_small` of c8."""
    return _create("gcsa_pyramid_small_c8", "gcsa_pyramid_small", "c8", pretrained, kwargs)


@register_model
def gcsa_pyramid_small_d4(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_small` of d4."""
    return _create("gcsa_pyramid_small_d4", "gcsa_pyramid_small", "d4", pretrained, kwargs)


@register_model
def gcsa_pyramid_small_d8(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_small` of d8."""
    return _create("gcsa_pyramid_small_d8", "gcsa_pyramid_small", "d8", pretrained, kwargs)


@register_model
def gcsa_pyramid_base(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """Four stages, the largest."""
    return _create("gcsa_pyramid_base", "gcsa_pyramid_base", "c4", pretrained, kwargs)


@register_model
def gcsa_pyramid_base_c4(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_base` of c4."""
    return _create("gcsa_pyramid_base_c4", "gcsa_pyramid_base", "c4", pretrained, kwargs)


@register_model
def gcsa_pyramid_base_c8(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_base` of c8."""
    return _create("gcsa_pyramid_base_c8", "gcsa_pyramid_base", "c8", pretrained, kwargs)


@register_model
def gcsa_pyramid_base_d4(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_base` of d4."""
    return _create("gcsa_pyramid_base_d4", "gcsa_pyramid_base", "d4", pretrained, kwargs)


@register_model
def gcsa_pyramid_base_d8(pretrained: bool = False, **kwargs: Any) -> GCSAPyramid:
    """`gcsa_pyramid_base` of d8."""
    return _create("gcsa_pyramid_base_d8", "gcsa_pyramid_base", "d8", pretrained, kwargs)
