"""Registration of a model family in timm: each size under its bare name and for each of the usual groups."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

from timm.data import IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD
from timm.models import generate_default_cfgs, register_model

from gcsa.models.backbone import Backbone

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


def register_family(
    module: str,
    create: Callable[..., Backbone],
    groups: dict[str, str],
    cfgs: dict[str, dict[str, Any]],
    bare: Collection[str] = (),
) -> None:
    """Registers `size` and `size_c4`, `size_c8`, ... for each size in `groups` (size to default group); those in `bare`
    under the first name only.

    `create(size, variant, group, pretrained, **kwargs)` builds the model; the entry points become members of
    `module`, as timm expects of a model file.
    """
    variants = {
        f"{size}{suffix}": (size, group)
        for size, default in groups.items()
        for suffix, group in [("", default), *((f"_{group}", group) for group in GROUPS if size not in bare)]
    }
    namespace = sys.modules[module]
    namespace.__dict__["default_cfgs"] = generate_default_cfgs(
        {name: cfgs[size] for name, (size, _) in variants.items()}
    )
    for name, (size, group) in variants.items():
        entry_point = _entry_point(create, size, name, group)
        entry_point.__name__ = entry_point.__qualname__ = name
        entry_point.__module__ = module
        namespace.__dict__[name] = register_model(entry_point)


def _entry_point(create: Callable[..., Backbone], size: str, name: str, group: str) -> Callable[..., Backbone]:
    def entry_point(pretrained: bool = False, **kwargs: Any) -> Backbone:
        return create(size, name, kwargs.pop("group", group), pretrained, **kwargs)

    return entry_point
