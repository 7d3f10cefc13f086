"""Plain convolutional networks for images of 28 to 96 pixels that timm lacks: AlexNet and VGG-16.

Layer sequences of torchvision's `alexnet` (Krizhevsky 2014, One weird trick for parallelizing convolutional neural
networks) and timm's `vgg16_bn` (Simonyan and Zisserman 2015), adapted to small images as is usual for CIFAR-10: the
last pooling covers the whole remaining map instead of 3 x 3 or 2 x 2 positions, and one linear layer takes the place
of the three large ones, which held most of the parameters. AlexNet pools over 2 x 2 instead of 3 x 3, and its first
padding is 5 instead of 2. That leaves 2.5M and 14.7M parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from timm.models import build_model_with_cfg
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.options import Options, Range, Rate
from gcsa.layers.pooling import check_classes
from gcsa.models.registry import MODEL_OPTIONS, refuse_features_only

POOLS = ("max", "")


@dataclass(frozen=True, kw_only=True)
class PlainOptions(Options):
    """Options of the plain convolutional networks."""

    num_classes: Annotated[int, Range(0, 1_000_000), "classes; 0: none, for features"] = 1000
    in_chans: Annotated[int, Range(1, 1024), "channels of an image"] = 3
    global_pool: Annotated[Literal["max", ""], "over positions; empty: the unpooled map, without classes"] = "max"
    drop_rate: Annotated[Rate, "dropout in front of the classifier"] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.num_classes, self.global_pool, POOLS)


class PlainCNN(nn.Module):
    """Convolutions with ReLU, maximum over the remaining map, dropout, linear classifier, with timm's head methods.

    `layers`: the convolutions as (channels, kernel, stride, padding), None for a 2 x 2 max-pooling; `smallest`: the
    least side of an image that they leave a position of; `batch_norm` puts one behind each convolution. `options`
    are those of `PlainOptions`. Raises UserError for an impossible value.
    """

    def __init__(
        self,
        layers: Sequence[tuple[int, int, int, int] | None],
        smallest: int,
        batch_norm: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        o = PlainOptions(**options)
        self.in_chans, self.smallest = o.in_chans, smallest
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        modules: list[nn.Module] = []
        channels = o.in_chans
        for layer in layers:
            if layer is None:
                modules.append(nn.MaxPool2d(2))
                continue
            width, kernel_size, stride, padding = layer
            modules.append(nn.Conv2d(channels, width, kernel_size, stride, padding, **factory))
            nn.init.kaiming_normal_(modules[-1].weight, mode="fan_out", nonlinearity="relu")  # type: ignore[arg-type]
            nn.init.zeros_(modules[-1].bias)  # type: ignore[arg-type]
            if batch_norm:
                modules.append(nn.BatchNorm2d(width, **factory))
            modules.append(nn.ReLU(inplace=True))
            channels = width
        self.features = nn.Sequential(*modules)
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.drop = nn.Dropout(o.drop_rate)
        self.num_features = self.head_hidden_size = channels
        self.global_pool: str = o.global_pool
        self.reset_classifier(o.num_classes)

    def check_input_size(self, height: int, width: int) -> None:
        """Raises ValueError for an image of which the poolings leave nothing."""
        if min(height, width) < self.smallest:
            raise UserError(
                f"an image of {height} x {width} is too small for this network: both sides must be {self.smallest} or more",
                "input.too_small",
            )

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to unpooled features (B, C, h, w)."""
        return self.features(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features (B, C, h, w) to logits (B, num_classes), or to (B, C) where `pre_logits` is true."""
        if self.global_pool == "":
            return x
        x = self.drop(self.pool(x).flatten(1))
        return x if pre_logits else self.fc(x)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to logits (B, num_classes)."""
        return self.forward_head(self.forward_features(x))

    @torch.jit.ignore
    def get_classifier(self) -> nn.Module:
        return self.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A fresh classifier (0 classes: none), and another pooling ("max", or "" for the unpooled map and no classes).

        Raises ValueError for another pooling and for the unpooled map together with classes.
        """
        pool = self.global_pool if global_pool is None else global_pool
        check_classes(num_classes, pool, POOLS)
        self.num_classes, self.global_pool = num_classes, pool
        like = next(self.parameters())
        fc: nn.Module = nn.Identity()
        if num_classes > 0:
            fc = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)
        self.fc = fc


def _vgg(*stages: tuple[int, int]) -> list[tuple[int, int, int, int] | None]:
    """Stages of (convolutions, channels) with a pooling between each two."""
    layers: list[tuple[int, int, int, int] | None] = []
    for depth, channels in stages:
        layers += [(channels, 3, 1, 1)] * depth + [None]
    return layers[:-1]


SIZES: dict[str, dict[str, Any]] = {
    "alexnet_small": dict(
        layers=[(64, 11, 4, 5), None, (192, 5, 1, 2), None, (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1)],
        smallest=13,
    ),
    "vgg16_small": dict(layers=_vgg((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), smallest=16, batch_norm=True),
}

MODEL_OPTIONS.update(dict.fromkeys(SIZES, PlainOptions))


def _create(name: str, pretrained: bool, kwargs: dict[str, Any]) -> PlainCNN:
    refuse_features_only(name, kwargs)
    return build_model_with_cfg(PlainCNN, name, pretrained, **{**SIZES[name], **kwargs})


def alexnet_small(pretrained: bool = False, **kwargs: Any) -> PlainCNN:
    """AlexNet for small images."""
    return _create("alexnet_small", pretrained, kwargs)


def vgg16_small(pretrained: bool = False, **kwargs: Any) -> PlainCNN:
    """VGG-16 with batch norm for small images."""
    return _create("vgg16_small", pretrained, kwargs)
