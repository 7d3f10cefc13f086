"""What the families need to register with timm: its description of a model, the groups that names end in, and the tags of
the weights that come with gcsa."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from timm.data import IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD
from timm.models import generate_default_cfgs, resolve_pretrained_cfg

from gcsa._utils.errors import UserError
from gcsa._utils.published import CONFIG, TENSORS, list_weights, published

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
    """timm's `default_cfgs` of each size, of `size_c4`, `size_c8`, ... but for the sizes in `bare`, and of the published
    weights of each, such as `gcsa_tiny.rotmnist`."""
    named = {
        name: cfg
        for size, cfg in cfgs.items()
        for name in (size, *(f"{size}_{group}" for group in GROUPS if size not in bare))
    }
    trained = _trained(named)
    # As in timm, a name without a tag stands for its first weights where it has any.
    with_weights = {name.partition(".")[0] for name in trained}
    return generate_default_cfgs({**{name: named[name] for name in named if name not in with_weights}, **trained})


def with_trained(name: str, pretrained: bool, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments of timm's `create_model(name, pretrained, **kwargs)` with the options that the published weights
    which they ask for were trained with, and those options alone: none for random or for other weights."""
    overlay = kwargs.get("pretrained_cfg_overlay") or {}
    if not overlay.get("file") and any(overlay.get(source) for source in ("url", "hf_hub_id", "state_dict")):
        kwargs = {**kwargs, "pretrained_cfg_overlay": {"file": None, **overlay}}  # for timm prefers a file
    asked = kwargs.get("pretrained_cfg")
    if isinstance(asked, str):  # by a tag
        folder = published(f"{name}.{asked}")
    elif pretrained or asked:
        file = Path(resolve_pretrained_cfg(name, asked, kwargs.get("pretrained_cfg_overlay")).file or "")
        folder = published(file.parent.name)
        folder = folder if folder is not None and folder / TENSORS == file else None
    else:
        folder = None
    config = {} if folder is None else _read_config(folder)
    # Those of a recogniser are of its head: its encoder has the options of its name.
    options = config["model_args"] if config.get("task") == "classification" else {}
    return {**options, **kwargs}, options


def _trained(cfgs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """timm's description of each of the published weights of these architectures, which it opens without a network."""
    found = {}
    for name in list_weights():
        folder, architecture = published(name), name.partition(".")[0]
        if folder is None or architecture not in cfgs:
            continue
        config = _read_config(folder)
        # A recogniser of text is its encoder, without the layer that names characters; it takes ink as 1 and paper as 0.
        encoder = {"num_classes": 0, "mean": (1.0,), "std": (-1.0,)}
        stored = {**config.get("pretrained_cfg", encoder), "label_names": config.get("label_names")}
        keys = ("input_size", "mean", "std", "num_classes", "label_names")
        described = {key: stored[key] for key in keys if stored.get(key) is not None}
        described = {key: tuple(value) if isinstance(value, list) else value for key, value in described.items()}
        found[name] = {**cfgs[architecture], **described, "file": str(folder / TENSORS)}
    return found


def _read_config(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return content


def refuse_features_only(name: str, options: dict[str, Any]) -> None:
    """Raises ValueError for `features_only`, which a model of one feature map after its last layer cannot give."""
    if options.get("features_only"):
        raise UserError(f"{name} has no feature maps of stages: leave out features_only, and call forward_features")
