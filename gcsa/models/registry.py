"""Registration of the model families with timm: descriptions of models, their sizes, and the tags of published weights."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from timm.data import IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, resolve_pretrained_cfg
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.options import Options, explain
from gcsa._utils.published import CONFIG, TENSORS, list_models, published
from gcsa.groups import group

MODEL_OPTIONS: dict[str, type[Options]] = {}
"""The options of each model that gcsa registers with timm, those of baselines once one was asked for (`gcsa.models.create.options_of`)."""


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


def family_cfgs(options: type[Options], cfgs: dict[str, dict[str, Any]]) -> Any:
    """timm's `default_cfgs` of the models `cfgs`, which take `options`, and of the published weights of each, such as
    `gcsa_tiny.rotmnist`."""
    MODEL_OPTIONS.update(dict.fromkeys(cfgs, options))
    published_cfgs = _published_cfgs(cfgs)
    # As in timm, a name without a tag selects its first weights, if there are any.
    with_weights = {name.partition(".")[0] for name in published_cfgs}
    return generate_default_cfgs({**{name: cfgs[name] for name in cfgs if name not in with_weights}, **published_cfgs})


def scale_fields(fields: Any, order: int, num_heads: Any = 1) -> Any:
    """The fields, one number or one for each stage, with which a group of `order` has as many parameters as one of order 8 has
    with `fields`.

    Parameters grow as C^2 |H|, so C is proportional to 1 / sqrt(|H|), rounded to a multiple of the heads.
    """
    if isinstance(fields, int):
        return max(round(fields * math.sqrt(8 / order) / num_heads), 1) * num_heads
    heads = [num_heads] * len(fields) if isinstance(num_heads, int) else num_heads
    return tuple(scale_fields(width, order, n) for width, n in zip(fields, heads, strict=True))


def merge(size: Mapping[str, Any], kwargs: Mapping[str, Any], num_heads: Any = 1) -> dict[str, Any]:
    """The arguments of a size, with its fields scaled to the group, overridden by those of the caller."""
    order = group(kwargs.get("group", size["group"])).order
    scaled = {"fields": scale_fields(size["fields"], order, num_heads)}
    if "stem_fields" in size:
        scaled["stem_fields"] = scale_fields(size["stem_fields"], order)
    return {**size, **scaled, **kwargs}


def build(
    model_cls: Any,
    name: str,
    pretrained: bool,
    kwargs: dict[str, Any],
    merged: Callable[[dict[str, Any]], dict[str, Any]],
) -> Any:
    """The model `name`, for timm's entry points. `merged` adds the arguments of its size to those of the caller.

    Raises TypeError for an argument that the model does not take, and UserError for a value out of its range.
    """
    kwargs, trained = resolve_pretrained_args(name, pretrained, kwargs)
    arguments = merged(kwargs)
    known = explain(MODEL_OPTIONS[name])
    options: Any = MODEL_OPTIONS[name](**{key: value for key, value in arguments.items() if key in known})
    features = dict(out_indices=tuple(range(options.stem_levels + options.num_stages)), feature_cls="getter")
    try:
        model = build_model_with_cfg(
            model_cls, name, pretrained, feature_cfg=features, pretrained_filter_fn=checkpoint_filter_fn, **arguments
        )
    except TypeError as error:
        if match := re.search(r"unexpected keyword argument '(\w+)'", str(error)):
            close = difflib.get_close_matches(match[1], known, 3) or known
            raise TypeError(f"{name} takes no {match[1]}=: choose from {', '.join(close)}") from error
        raise
    # timm writes these into folders of weights, together with the arguments of the caller.
    vars(model)["_model_args"] = trained
    return model


def strip_prefix(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Removes the prefix "model." of a LightningModule's state; returns any other state unchanged."""
    if not all(name.startswith("model.") for name in state):
        return state
    return {name.removeprefix("model."): tensor for name, tensor in state.items()}


def checkpoint_filter_fn(state: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """timm's filter: the state of `model` from a checkpoint of train.py, or from a text recogniser of which it is the encoder.

    An encoder has no head, so the model keeps its own. `load_checkpoint` of timm takes it as `filter_fn`, for networks of timm too.
    """
    state = strip_prefix(state)
    encoder = {name.removeprefix("encoder."): part for name, part in state.items() if name.startswith("encoder.")}
    head = {name: part for name, part in model.state_dict().items() if name.startswith("head.")}
    return {**head, **encoder} if encoder else state


def resolve_pretrained_args(
    name: str, pretrained: bool, kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`kwargs` of timm's `create_model(name, pretrained, **kwargs)` with the options of the published weights added, and these
    options.

    For random weights and for other weights there are no such options.
    """
    overlay = kwargs.get("pretrained_cfg_overlay") or {}
    if not overlay.get("file") and any(overlay.get(source) for source in ("url", "hf_hub_id", "state_dict")):
        kwargs = {**kwargs, "pretrained_cfg_overlay": {"file": None, **overlay}}  # because timm prefers a file
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
    # The options of a recogniser are for its head; its encoder has the options of its name.
    options = config["model_args"] if config.get("task") == "classification" else {}
    return {**options, **kwargs}, options


def _published_cfgs(cfgs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """timm's descriptions of the published weights of these architectures, which load offline."""
    described = {}
    for name in list_models():
        folder, architecture = published(name), name.partition(".")[0]
        if folder is None or architecture not in cfgs:
            continue
        config = _read_config(folder)
        # timm gets the encoder of a text recogniser, without its classifier. Its input is 1 for ink and 0 for paper.
        encoder = {"num_classes": 0, "mean": (1.0,), "std": (-1.0,)}
        stored = {**config.get("pretrained_cfg", encoder), "label_names": config.get("label_names")}
        keys = ("input_size", "mean", "std", "num_classes", "label_names")
        own = {key: stored[key] for key in keys if stored.get(key) is not None}
        own = {key: tuple(value) if isinstance(value, list) else value for key, value in own.items()}
        described[name] = {**cfgs[architecture], **own, "file": str(folder / TENSORS)}
    return described


def _read_config(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return content


def refuse_features_only(name: str, options: dict[str, Any]) -> None:
    """Raises ValueError for `features_only`, because the model has only one feature map, after its last layer."""
    if options.get("features_only"):
        raise UserError(
            f"{name} has no feature maps of stages: leave out features_only, and call forward_features", "features_only"
        )
