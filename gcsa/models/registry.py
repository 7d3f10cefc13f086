"""What the families need to register with timm: its description of a model, and the groups that names end in."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from timm.data import IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD
from timm.models import generate_default_cfgs

GROUPS = ("c4", "c8", "d4", "d8")


def default_cfg(
    input_size: tuple[int, int, int], stride: int, num_classes: int = 1000, first_conv: str = "stem.convs.0"
) -> dict[str, Any]:
    """timm's description of a model: its input (C, H, W) and the names of its first and last layer."""
    return dict(
        url="",
        num_classes=num_classes,
        input_size=input_size,
        pool_size=(input_size[1] // stride, input_size[2] // stride),
        crop_pct=1.0,
        interpolation="bicubic",
        mean=IMAGENET_INCEPTION_MEAN[: input_size[0]],
        std=IMAGENET_INCEPTION_STD[: input_size[0]],
        first_conv=first_conv,
        classifier="head.fc",
        license="apache-2.0",
    )


def with_groups(cfgs: dict[str, dict[str, Any]], bare: Collection[str] = ()) -> Any:
    """timm's `default_cfgs` of each size, and of `size_c4`, `size_c8`, ... but for the sizes in `bare`."""
    return generate_default_cfgs(
        {
            name: cfg
            for size, cfg in cfgs.items()
            for name in (size, *(f"{size}_{group}" for group in GROUPS if size not in bare))
        }
    )


def refuse_features_only(name: str, options: dict[str, Any]) -> None:
    """Raises ValueError for `features_only`, which a model of one feature map after its last layer cannot give."""
    if options.get("features_only"):
        raise ValueError(f"{name} has no feature maps of stages: leave out features_only, and call forward_features")
