"""The base of all gcsa models: a stem, a sequence of stages, a norm and an invariant head, with timm's interface."""

# Annotations stay objects here (no `from __future__`), because torch.fx copies them into code that TorchScript reads.
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import torch
from timm.layers import register_notrace_function
from timm.models import checkpoint_seq
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from gcsa._utils.errors import UserError, reworded
from gcsa._utils.options import Options, Range, Rate, Rule, Side, Width
from gcsa.groups import Group, group as make_group
from gcsa.layers import FieldNorm, GroupConvSelfAttention, RelativeSelfAttention, Stem
from gcsa.layers.buffers import fill_buffers, init_weights
from gcsa.layers.layout import to_nchw
from gcsa.layers.pooling import POOLS, InvariantHead, NoHead, check_classes
from gcsa.models.registry import strip_prefix


@torch.fx.wrap
@register_notrace_function
def check_input(height: int, width: int, size_divisor: int, name: str) -> None:
    """Raises UserError unless both sides are positive multiples of `size_divisor`, the model's total stride."""
    for size in (height, width):
        if size % size_divisor != 0 or size == 0:
            below = size // size_divisor * size_divisor
            near = f"{below} or {below + size_divisor}" if below > 0 else f"{size_divisor}"
            raise UserError(
                f"an image of {height} x {width} breaks the exact equivariance of this {name} model: both sides must be "
                f"multiples of {size_divisor}; resize {size} to {near}",
                "input.size",
            )


def blocks(stages: nn.Sequential) -> list[nn.Module]:
    """The blocks of all stages: a pyramid's stage is a sequence of them."""
    return [block for stage in stages for block in (stage if isinstance(stage, nn.Sequential) else [stage])]


def take_checkpoint(model: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Brings the names in a checkpoint of train.py, which begin with "model.", to those of `model`; a hook in front of
    `load_state_dict`, to which timm's `load_checkpoint` gives such a state."""
    if not prefix:  # the state is that of `model` alone
        own = dict(strip_prefix(state))
        state.clear()
        state.update(own)


@cache
def warn_of_inexact(group: Group) -> None:
    """Warns, once for each group, if it does not contain the rotation by 90 degrees, so that few elements are exact on a grid."""
    if group.rotations > 2 and group.rotations % 4:
        warnings.warn(
            f"group={group} is exact on a grid of pixels under {group.exactness}; its other elements hold approximately, as "
            f"far as pixels show them: choose {'d' if group.mirror else 'c'}4 or {'d' if group.mirror else 'c'}8 for quarter rotations",
            stacklevel=2,
        )


def is_group(value: str) -> bool:
    """Whether `value` names a group of at most 128 elements."""
    try:
        return make_group(value).order <= 128
    except ValueError:
        return False


GroupName = Annotated[
    str, Rule(is_group, "such as c4 or d4: c or d and a number of rotations, of at most 128 elements")
]
Radius = Annotated[int, Range(0, 1024)] | Literal["all"]
WidthOrZero = Annotated[int, Range(0, 16384)]
MlpRatio = Annotated[float, Range(0.01, 64)]
Stride = Annotated[int, Range(1, 64)]
ImageSize = Side | tuple[Side, Side]
ATTN_DROP = "dropout of attention weights, one draw for each head and distance of two positions"


@dataclass(frozen=True, kw_only=True)
class BackboneOptions(Options):
    """Options of every family."""

    num_classes: Annotated[int, Range(0, 1_000_000), "classes; 0: none, for features"] = 1000
    in_chans: Annotated[int, Range(1, 1024), "channels of an image"] = 3
    img_size: Annotated[
        ImageSize | None, "pixels a side; only checked, since a model takes any that its strides divide"
    ] = None
    group: Annotated[GroupName, "rotations c1, c4, c8, ... or with reflections d4, d8, ..."] = "c8"
    global_pool: Annotated[
        Literal["avg", "max", ""], "pooling over the group; empty: the unpooled map, without classes"
    ] = "max"
    head_fields: Annotated[WidthOrZero, "fields of a 1 x 1 convolution in front of the pooling; 0: no such layer"] = 0
    centred: Annotated[bool, "true: learned weights of the distance to the image's centre in the pooling"] = False
    drop_rate: Annotated[Rate, "dropout in front of the classifier"] = 0.0
    proj_drop_rate: Annotated[Rate, "dropout of whole fields in the blocks"] = 0.0
    drop_path_rate: Annotated[
        Rate, "stochastic depth: share of the branches left out, rising to this in the last block"
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.num_classes, self.global_pool, POOLS)

    @property
    def stem_levels(self) -> int:
        """Maps of the stem in `feature_info`, in front of those of the stages."""
        return 0

    def drop_path_rates(self, depth: int) -> list[float]:
        """The rates of `depth` blocks, rising from 0 to `drop_path_rate`; a single block has rate 0."""
        return [self.drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]


@dataclass(frozen=True, kw_only=True)
class ConvOptions(BackboneOptions):
    """Options of the families with a stem of convolutions."""

    stem_strides: Annotated[Sequence[Stride], "strides of the stem, one convolution each, such as [2, 2]"] = (2, 2)
    stem_fields: Annotated[
        Sequence[Width] | None,
        "fields behind each convolution of the stem but the last, such as [8]; null: half of the fields",
    ] = None
    stem_norm: Annotated[
        Literal["layer", "batch"],
        "norm behind the stem's convolutions: layer, or batch, which keeps the strength of a response",
    ] = "layer"
    stem_separable: Annotated[
        bool, "true: depthwise, then 1 x 1, convolutions between the stem's first and last, of three or more"
    ] = False
    low_pass: Annotated[bool, "true: a low-pass filter in front of each stride of the stem"] = True
    positions: Annotated[bool, "true: learned positions about the image's centre"] = False
    padding_mode: Annotated[Literal["zeros", "circular"], "zeros, or circular for exact cyclic shifts"] = "zeros"
    basis: Annotated[
        Literal["full", "band"],
        "filters: band (smooth ones), or full (all; for groups of 90-degree rotations and reflections only)",
    ] = "band"

    @property
    def stride(self) -> int:
        """Pixels a position of the stem's map."""
        return math.prod(self.stem_strides)

    @property
    def conv(self) -> dict[str, Any]:
        """Arguments of every convolution."""
        return dict(padding_mode=self.padding_mode, basis=self.basis)

    def make_stem(self, fields: int, group: Group, **options: Any) -> Stem:
        """The stem, with `fields` fields out; `options` are further arguments of `Stem`."""
        own: dict[str, Any] = dict(
            norm=self.stem_norm, low_pass=self.low_pass, separable=self.stem_separable, positions=self.positions
        )
        return Stem(
            self.in_chans, fields, group, self.stem_strides, widths=self.stem_fields, **own, **self.conv, **options
        )


class Backbone(nn.Module):
    """Image classifier and feature extractor, equivariant to `group`; base class of the model families.

    A family makes the stem and the stages. Public methods return features (B, N * C, H, W) with the group axis first, where N is the
    order of the feature group.

    Args:
        options: of the family, checked.
        stem: images (B, in_chans, H, W) to (B, H / s, W / s, N, C).
        stages: applied in sequence.
        fields: regular fields out of the last stage.
        feature_info: timm's description of each stage, with its channels and its stride; in front of these, of each of the
            stem's `maps`, or of none.
        feature_group: the group whose elements index the fields of the stages: `group` itself (None), or c1 for scalar
            fields.

    Attributes:
        num_features: channels of `forward_features`.
        feature_kind: the kind of the features in `gcsa.actions`: "regular", or "image" for scalar fields.
        head_hidden_size: number of invariant features in front of the classifier.
        stem_levels: maps of the stem in `feature_info`, which are regular fields.
        size_divisor: the total stride, which must divide both sides of an image.
    """

    def __init__(
        self,
        options: BackboneOptions,
        stem: nn.Module,
        stages: Sequence[nn.Module],
        fields: int,
        feature_info: list[dict[str, Any]],
        feature_group: Group | None = None,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.group = make_group(options.group)
        warn_of_inexact(self.group)
        self.group_name = self.group.name
        self.num_classes, self.in_chans = options.num_classes, options.in_chans
        feature_group = feature_group or self.group
        self.feature_kind = "regular" if feature_group == self.group else "image"
        self.num_features = fields * feature_group.order
        self.size_divisor = feature_info[-1]["reduction"]
        self.feature_info = feature_info
        self.stem_levels = len(feature_info) - len(stages)
        self.grad_checkpointing = False
        self.stem = stem
        self.stages = nn.Sequential(*stages)
        norm: nn.Module = FieldNorm(fields, feature_group.order, **factory)
        self.norm = norm
        o = options
        head = InvariantHead(
            fields, o.num_classes, feature_group, o.head_fields, o.global_pool, o.drop_rate, o.centred, **factory
        )
        self.head: InvariantHead | NoHead = head
        self.head_hidden_size = head.num_features
        self.register_load_state_dict_pre_hook(take_checkpoint)
        self.register_load_state_dict_post_hook(fill_buffers)  # layers without parameters do not know the device
        if options.img_size is not None:
            self.check_input_size(*height_and_width(options.img_size))

    def init_weights(self) -> None:
        """Fills all parameters and buffers, such as those of a model made on the meta device and moved by `to_empty`."""
        init_weights(self)

    def extra_repr(self) -> str:
        return f"group={self.group}, exact on a grid of pixels under {self.group.exactness}"

    def check_input_size(self, height: int, width: int) -> None:
        """Raises ValueError unless rotations by 90 degrees are exact for images of this size; it names the nearest sizes that work.

        Also raises it for a map smaller than a neighbourhood, or not divisible by the stride of keys and values.
        """
        check_input(height, width, self.size_divisor, self.group_name)
        of_stages = self.feature_info[self.stem_levels :]
        for info, stage in zip(of_stages, self.stages, strict=False):  # pruned models have fewer stages
            for module in stage.modules():
                if isinstance(module, GroupConvSelfAttention | RelativeSelfAttention):
                    stride = info["reduction"]
                    try:
                        module.check_map(height // stride, width // stride)
                    except ValueError as error:
                        sentence = f"images of {height} x {width}, {stride} pixels a position: {error}"
                        raise reworded(error, sentence, "input.size") from error

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to unpooled features (B, N * C, H / s, W / s)."""
        check_input(x.shape[2], x.shape[3], self.size_divisor, self.group_name)
        x = self.stem(x)
        if self.grad_checkpointing and not torch.jit.is_scripting():
            x = checkpoint_seq(blocks(self.stages), x)
        else:
            x = self.stages(x)
        return to_nchw(self.norm(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features (B, N * C, h, w) to logits (B, num_classes), or to (B, head_hidden_size) with `pre_logits`."""
        return self.head(x, pre_logits)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to logits (B, num_classes).

        Raises ValueError for sides that are not multiples of the total stride.
        """
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """The final features, as in `forward_features`, and the features of the chosen levels, as in `as_map`: of the stem's
        maps, where `feature_info` has these, and of the stages.

        Args:
            x: images (B, in_chans, H, W).
            indices: the last n levels, a list of levels, or None for all.
            norm: apply the final norm to stages of the final width.
            stop_early: leave out the stages behind the last chosen level.
            output_fmt: "NCHW" only.
            intermediates_only: return only the features of the levels.

        Raises:
            ValueError: another output_fmt, and sides that are not multiples of the total stride.
        """
        if output_fmt != "NCHW":
            raise UserError(f"output_fmt must be NCHW, not {output_fmt!r}", "output_fmt", output_fmt=output_fmt)
        check_input(x.shape[2], x.shape[3], self.size_divisor, self.group_name)
        first = self.stem_levels
        take, last = feature_take_indices(first + len(self.stages), indices)
        stages = self.stages[: max(last + 1 - first, 0)] if stop_early else self.stages

        def normed(x: Tensor) -> Tensor:
            return self.norm(x) if x.shape[-2] * x.shape[-1] == self.num_features else x

        intermediates = []
        if first > 0:
            maps = self.stem.maps(x)  # type: ignore[operator]
            intermediates = [self.as_map(maps[i]) for i in take if i < first]
            x = self.stem.pool(maps[-1])  # type: ignore[operator]
        else:
            x = self.stem(x)
        for i, stage in enumerate(stages, first):
            x = checkpoint_seq(blocks(nn.Sequential(stage)), x) if self.grad_checkpointing else stage(x)
            if i in take:
                intermediates.append(self.as_map(normed(x) if norm else x))
        if intermediates_only:
            return intermediates
        return to_nchw(normed(x)), intermediates

    def as_map(self, x: Tensor) -> Tensor:
        """A stage's output (B, h, w, N, C) as `forward_intermediates` returns it, here (B, N * C, h, w).

        The number of channels is that of `feature_info`.
        """
        return to_nchw(x)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Removes what is behind the last of the levels `indices`, and optionally the norm and the head; returns the indices.

        The norm is also removed if it does not fit the width of the new last level. The sides of images must then be multiples of
        the stride of that level only. `reset_classifier` cannot restore a removed head.
        """
        first = self.stem_levels
        take, last = feature_take_indices(first + len(self.stages), indices)
        self.stages = self.stages[: max(last + 1 - first, 0)]
        if last < first:
            self.stem.prune(last + 1)  # type: ignore[operator]
            self.stem_levels = last + 1
        if prune_norm or last < first or self.feature_info[last]["num_chs"] != self.feature_info[-1]["num_chs"]:
            self.norm = nn.Identity()
        if prune_head:
            self.head, self.num_classes = NoHead(), 0
        self.size_divisor = self.feature_info[last]["reduction"]
        return take

    @torch.jit.ignore
    def get_classifier(self) -> nn.Module:
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Makes a new classifier for `num_classes` (0: none), and sets the pooling ("avg", "max", or "" for the unpooled map).

        Raises ValueError for an unknown pooling, and for the unpooled map together with classes.
        """
        self.head.reset(num_classes, global_pool)
        self.num_classes = num_classes

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.startswith("stem.positions.")}

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        blocks_of_a_pyramid = [] if coarse else [(r"^stages\.(\d+)\.(\d+)\.", None)]
        return dict(stem=r"^stem", blocks=[*blocks_of_a_pyramid, (r"^stages\.(\d+)", None), (r"^norm", (99999,))])


def stage_info(channels: Sequence[int], strides: Sequence[int]) -> list[dict[str, Any]]:
    """timm's `feature_info` for stages with these channels and total strides."""
    pairs = enumerate(zip(channels, strides, strict=True))
    return [dict(num_chs=channels, reduction=stride, module=f"stages.{i}") for i, (channels, stride) in pairs]


def stem_info(stem: Stem, order: int) -> list[dict[str, Any]]:
    """timm's `feature_info` for the maps of `stem`, of regular fields of a group of `order` elements."""
    modules = [*(f"stem.norms.{i}" for i in range(len(stem.levels) - 1)), "stem.blocks"]
    pairs = zip(stem.levels, modules, strict=True)
    return [dict(num_chs=fields * order, reduction=stride, module=module) for (fields, stride), module in pairs]


def height_and_width(img_size: int | Sequence[int]) -> tuple[int, int]:
    """Both sides of an image of `img_size`."""
    return (img_size, img_size) if isinstance(img_size, int) else (img_size[0], img_size[1])
