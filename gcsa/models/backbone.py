"""What all gcsa models share: a stem, a sequence of stages, a norm and an invariant head, with timm's contract."""

# Annotations stay objects here (no `from __future__`), because torch.fx copies them into code that TorchScript reads.
import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from timm.layers import register_notrace_function
from timm.models import checkpoint_seq
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import Group
from gcsa.layers.attention import GroupConvSelfAttention
from gcsa.layers.buffers import fill_buffers
from gcsa.layers.checks import check_rate, check_sequence, check_whole
from gcsa.layers.layout import to_nchw
from gcsa.layers.norm import FieldNorm
from gcsa.layers.pooling import POOLS, InvariantHead, NoHead, check_classes
from gcsa.layers.relative_attention import RelativeSelfAttention


@torch.fx.wrap
@register_notrace_function
def check_input(height: int, width: int, multiple: int, name: str) -> None:
    """Raises ValueError unless both sides are positive multiples of `multiple`, the model's total stride."""
    for size in (height, width):
        if size % multiple != 0 or size == 0:
            below = size // multiple * multiple
            near = f"{below} or {below + multiple}" if below > 0 else f"{multiple}"
            raise UserError(
                f"an image of {height} x {width} breaks the exact equivariance of this {name} model: both sides must be "
                f"multiples of {multiple}; resize {size} to {near}"
            )


def blocks(stages: nn.Sequential) -> list[nn.Module]:
    """The blocks of all stages: a pyramid's stage is a sequence of them."""
    return [block for stage in stages for block in (stage if isinstance(stage, nn.Sequential) else [stage])]


@cache
def warn_of_turns(group: Group) -> None:
    """Says, once for each group, that its smallest turns divide no quarter turn, so that a grid of pixels shows few of them."""
    if group.rotations > 2 and group.rotations % 4:
        warnings.warn(
            f"group={group} is exact on a grid of pixels under {group.exactness}; its other elements hold approximately, as "
            f"far as pixels show them: choose {'d' if group.mirror else 'c'}4 or {'d' if group.mirror else 'c'}8 for quarter turns",
            stacklevel=2,
        )


class Backbone(nn.Module):
    """Image classifier and feature extractor, equivariant to `group`; base class of the model families.

    A subclass gives the functions that build the stem and the stages, the last of which ends in `fields` fields, once
    the arguments are checked; `feature_info` describes each stage as timm does. Features are public as (B, N * C, H, W),
    group-major, N being the order of `fibre`.

    Args:
        fibre: the group whose elements index the fields of the stages: `group` itself (None), or c1 for scalar fields.
        num_classes: 0 for none.
        head_fields: fields of the 1 x 1 group convolution in front of the pooling (0: no such layer).
        global_pool: "avg", "max" (over the group), or "" for the unpooled map, without classes.
        drop_rate: of the classifier's inputs.
        centred: weigh positions by their distance to the centre where they are pooled (`CentredMean`).
        img_size: only checked, for the model takes any size that the strides divide.

    Attributes:
        num_features: channels of `forward_features`.
        feature_kind: how they move with the image, as in `gcsa.testing`: "regular", or "image" for scalar fields.
        head_hidden_size: numbers in front of the classifier, which are invariant.
        multiple: the total stride, of which both sides of an image must be multiples.
    """

    def __init__(
        self,
        group: Group,
        stem: Callable[[], nn.Module],
        stages: Callable[[], list[nn.Module]],
        feature_info: list[dict[str, Any]],
        fields: int,
        fibre: Group | None = None,
        num_classes: int = 1000,
        in_chans: int = 3,
        head_fields: int = 0,
        global_pool: str = "max",
        drop_rate: float = 0.0,
        centred: bool = False,
        img_size: int | tuple[int, int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole(in_chans=in_chans)
        check_whole(0, num_classes=num_classes, head_fields=head_fields)
        check_rate(drop_rate=drop_rate)
        check_classes(num_classes, global_pool, POOLS)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        warn_of_turns(group)
        self.group = group
        self.group_name = group.name
        self.num_classes, self.in_chans = num_classes, in_chans
        fibre = fibre or group
        self.feature_kind = "regular" if fibre == group else "image"
        self.num_features = fields * fibre.order
        self.multiple = feature_info[-1]["reduction"]
        self.feature_info = feature_info
        self.grad_checkpointing = False
        self.stem = stem()
        self.stages = nn.Sequential(*stages())
        norm: nn.Module = FieldNorm(fields, fibre.order, **factory)
        self.norm = norm
        head = InvariantHead(fields, num_classes, fibre, head_fields, global_pool, drop_rate, centred, **factory)
        self.head: InvariantHead | NoHead = head
        self.head_hidden_size = head.num_features
        self.register_load_state_dict_post_hook(fill_buffers)  # for layers without parameters, which know no device
        if img_size is not None:
            self.check_input_size(*height_and_width(img_size))

    def extra_repr(self) -> str:
        return f"group={self.group}, exact on a grid of pixels under {self.group.exactness}"

    def check_input_size(self, height: int, width: int) -> None:
        """Raises ValueError, naming the nearest sizes that work, unless quarter turns of such images are exact, and
        where a map is smaller than a neighbourhood or not divided by the stride of keys and values."""
        check_input(height, width, self.multiple, self.group_name)
        for info, stage in zip(self.feature_info, self.stages, strict=False):  # pruned models have fewer stages
            for module in stage.modules():
                if isinstance(module, GroupConvSelfAttention | RelativeSelfAttention):
                    stride = info["reduction"]
                    try:
                        module.check_map(height // stride, width // stride)
                    except ValueError as error:
                        raise UserError(f"images of {height} x {width}, {stride} pixels a position: {error}") from error

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to unpooled features (B, N * C, H / s, W / s)."""
        check_input(x.shape[2], x.shape[3], self.multiple, self.group_name)
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
        """Features after the chosen stages, as `as_map` gives them, and the final ones, as of `forward_features`, unless
        `intermediates_only`.

        `indices`: the last n stages, a list of stages, or None for all. `norm` applies the final norm to stages of
        the final width.
        """
        if output_fmt != "NCHW":
            raise UserError(f"output_fmt must be NCHW, not {output_fmt!r}")
        check_input(x.shape[2], x.shape[3], self.multiple, self.group_name)
        take, last = feature_take_indices(len(self.stages), indices)
        stages = self.stages[: last + 1] if stop_early else self.stages
        intermediates = []

        def normed(x: Tensor) -> Tensor:
            return self.norm(x) if x.shape[-2] * x.shape[-1] == self.num_features else x

        x = self.stem(x)
        for i, stage in enumerate(stages):
            x = checkpoint_seq(blocks(nn.Sequential(stage)), x) if self.grad_checkpointing else stage(x)
            if i in take:
                intermediates.append(self.as_map(normed(x) if norm else x))
        if intermediates_only:
            return intermediates
        return to_nchw(normed(x)), intermediates

    def as_map(self, x: Tensor) -> Tensor:
        """What `forward_intermediates` gives of a stage's (B, h, w, N, C), of as many channels as `feature_info` says: here
        (B, N * C, h, w)."""
        return to_nchw(x)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Removes the stages after the last of `indices`, and the norm and the head where asked; returns the indices.

        A norm that does not fit the width of the stage that is then the last goes too, and the sides of images need be
        multiples of that stage's stride alone. A head that was removed cannot be had back by `reset_classifier`.
        """
        take, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]
        if prune_norm or self.feature_info[last]["num_chs"] != self.feature_info[-1]["num_chs"]:
            self.norm = nn.Identity()
        if prune_head:
            self.head, self.num_classes = NoHead(), 0
        self.multiple = self.feature_info[last]["reduction"]
        return take

    @torch.jit.ignore
    def get_classifier(self) -> nn.Module:
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A fresh classifier (0 classes: none), and another pooling ("avg", "max", or "" for the unpooled map).

        Raises ValueError for an unknown pooling and for the unpooled map together with classes.
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


class Isotropic(Backbone):
    """A backbone of `depth` blocks on one resolution: `block` makes each for its place, from 0, and its rate of stochastic
    depth, which rises from 0 to `drop_path_rate`, so that a single block has none. `stride` is the stem's; `options` are
    those of `Backbone`."""

    def __init__(
        self,
        group: Group,
        stem: Callable[[], nn.Module],
        block: Callable[[int, float], nn.Module],
        fields: int,
        depth: int,
        stride: int,
        drop_path_rate: float,
        fibre: Group | None = None,
        **options: Any,
    ) -> None:
        check_whole(fields=fields, depth=depth, stride=stride)
        check_rate(drop_path_rate=drop_path_rate)
        rates = [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]
        channels = fields * (fibre or group).order
        info = [dict(num_chs=channels, reduction=stride, module=f"stages.{i}") for i in range(depth)]
        super().__init__(
            group, stem, lambda: [block(i, rate) for i, rate in enumerate(rates)], info, fields, fibre, **options
        )


def height_and_width(img_size: int | tuple[int, int]) -> tuple[int, int]:
    """Both sides of an image of `img_size`. Raises ValueError for anything but one or two whole numbers."""
    sides = tuple(img_size) if isinstance(img_size, Sequence) and not isinstance(img_size, str) else (img_size,) * 2
    if len(sides) != 2:
        raise UserError(f"img_size must be one number or a height and a width, not {sides}")
    for side in sides:
        check_whole(0, img_size=side)
    return sides


def total_stride(stem_strides: Sequence[int]) -> int:
    """The product of the stem's strides. Raises ValueError where they are not whole numbers from 1 on."""
    check_sequence(stem_strides=stem_strides)
    return math.prod(stem_strides)


def features_of(depth: int, conv_depth: int = 0) -> dict[str, Any]:
    """How timm's `features_only` takes the features of all stages. Raises ValueError unless these are whole numbers, the first
    from 1 on."""
    check_whole(depth=depth)
    check_whole(0, conv_depth=conv_depth)
    return dict(out_indices=tuple(range(conv_depth + depth)), feature_cls="getter")


def fields_for(fields: int, order: int, heads: int) -> int:
    """Fields that keep the number of parameters of `fields` in a group of order 8, rounded to whole heads.

    Parameters grow as C^2 |H|, so C grows as 1 / sqrt(|H|).
    """
    return max(round(fields * math.sqrt(8 / order) / heads), 1) * heads
