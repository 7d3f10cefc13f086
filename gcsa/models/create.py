"""The creation of a model from a name and options, of a user or of a file.

A file of weights must not choose code, addresses or paths. timm's `create_model` takes addresses, files and folders among its
arguments. Here each family has a closed list of options, each with its type and range.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, make_dataclass
from inspect import signature
from typing import Annotated, Any

import timm
import torch
from torch import nn

from gcsa._utils import options as declared
from gcsa._utils.errors import UserError, one_line
from gcsa._utils.options import Count, Options, Range, Rate, Side, Width, Word
from gcsa._utils.validation import shown
from gcsa.models import baselines, gcnn, gcsa, gcsa_pyramid  # noqa: F401 (which register their models)
from gcsa.models.backbone import BackboneOptions
from gcsa.models.pose import symmetrize
from gcsa.models.registry import MODEL_OPTIONS
from gcsa.symmetry import SymmetryOptions

NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)?")

PatchSize = Annotated[int, Range(1, 1024)]
Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True, kw_only=True)
class TimmOptions(Options):
    """The accepted options of timm's own models."""

    num_classes: Annotated[Annotated[int, Range(0, 1_000_000)] | None, "classes"] = None
    in_chans: Annotated[Annotated[int, Range(1, 1024)] | None, "channels of an image"] = None
    img_size: Annotated[Side | tuple[Side, Side] | None, "pixels a side"] = None
    global_pool: Annotated[Word | None, "of the features"] = None
    drop_rate: Annotated[Rate | None, "dropout in front of the classifier"] = None
    drop_path_rate: Annotated[Rate | None, "stochastic depth"] = None
    proj_drop_rate: Annotated[Rate | None, "dropout of the projections"] = None
    attn_drop_rate: Annotated[Rate | None, "dropout of attention"] = None
    pos_drop_rate: Annotated[Rate | None, "dropout of positions"] = None
    patch_size: Annotated[PatchSize | tuple[PatchSize, PatchSize] | None, "pixels"] = None
    window_size: Annotated[PatchSize | tuple[PatchSize, PatchSize] | None, "positions"] = None
    embed_dim: Annotated[Width | Sequence[Width] | None, "channels"] = None
    dims: Annotated[Sequence[Width] | None, "channels of each stage"] = None
    depth: Annotated[Count | None, "blocks"] = None
    depths: Annotated[Sequence[Count] | None, "blocks of each stage"] = None
    layers: Annotated[Sequence[Count] | None, "blocks of each stage"] = None
    channels: Annotated[Sequence[Width] | None, "channels of each stage"] = None
    num_heads: Annotated[Count | Sequence[Count] | None, "attention heads"] = None
    mlp_ratio: Annotated[Annotated[float, Range(0.01, 64)] | None, "hidden channels of the MLP, as a multiple"] = None
    qkv_bias: Annotated[bool | None, "of queries, keys and values"] = None
    qk_norm: Annotated[bool | None, "of queries and keys"] = None
    init_values: Annotated[Annotated[float, Range(0, 10)] | None, "of layer scale"] = None
    class_token: Annotated[bool | None, "beside the patches"] = None
    reg_tokens: Annotated[Annotated[int, Range(0, 256)] | None, "register tokens"] = None
    no_embed_class: Annotated[bool | None, "no position of the class token"] = None
    dynamic_img_size: Annotated[bool | None, "images of any size"] = None
    base_width: Annotated[Annotated[int, Range(1, 4096)] | None, "of a ResNet"] = None
    cardinality: Annotated[Annotated[int, Range(1, 4096)] | None, "of a ResNeXt"] = None
    stem_width: Annotated[Annotated[int, Range(1, 4096)] | None, "channels of the stem"] = None
    output_stride: Annotated[Annotated[int, Range(1, 32)] | None, "of the last stage"] = None
    bn_momentum: Annotated[Share | None, "of batch norm"] = None
    bn_eps: Annotated[Share | None, "of batch norm"] = None


SYMMETRY = tuple(field.name for field in fields(SymmetryOptions))


def register_options(name: str, **kinds: Any) -> None:
    """Declares the options of your own model `name`, registered with timm, beside those of `TimmOptions`: what train.py and a
    file of weights may set.

    kinds: the type of each, such as `width=int` or `names=Sequence[str]`.
    """
    options = [(key, Annotated[kind | None, "of this model"], None) for key, kind in kinds.items()]
    MODEL_OPTIONS[name] = make_dataclass(name, options, bases=(TimmOptions,), frozen=True, kw_only=True)


def options_of(name: str) -> type[Options]:
    """What the model `name`, with a tag or without, takes: `TimmOptions` where it declares nothing else."""
    architecture = name.partition(".")[0]
    baselines.import_baseline(architecture)
    return MODEL_OPTIONS.get(architecture, TimmOptions)


def fitting_options(name: str) -> list[str]:
    """Those of `TimmOptions` that the class of timm's model `name` takes; all where it cannot be made without memory."""
    names = [field.name for field in fields(TimmOptions)]
    try:
        with torch.device("meta"):
            taken = signature(type(timm.create_model(name))).parameters
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return names
    return [option for option in names if option in taken]


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None, those of `SymmetryOptions` among them. Raises UserError, in one sentence, for one that the
    model `name` does not take, and for a value out of its range."""
    family = options_of(name)
    symmetry = {key: options[key] for key in SYMMETRY if options.get(key) is not None}
    SymmetryOptions(**symmetry)
    if symmetry and issubclass(family, BackboneOptions):
        raise UserError(f"{name} has a group of its own, and takes no symmetry: set its group", "symmetry.own_group")
    own = {key: value for key, value in options.items() if key not in SYMMETRY}
    choices = (lambda: fitting_options(name)) if family is TimmOptions else None
    return declared.check_options(own, family, owner=name, choices=choices) | symmetry


def check_name(name: Any) -> str:
    """`name`, a model registered with timm, with one of its tags or none. Raises ValueError, with the nearest names, for any
    other."""
    if isinstance(name, str) and NAME.fullmatch(name) and timm.is_model(name):
        with suppress(RuntimeError):  # an unknown tag of this model
            timm.get_pretrained_cfg(name)
            return name
    names = [*timm.list_models(), *timm.list_models(pretrained=True)]
    close = difflib.get_close_matches(str(name)[:100], names, n=5, cutoff=0.5)
    close += [known for known in names if known.startswith(f"{str(name).partition('.')[0]}.")]
    choices = ", ".join(sorted({*timm.list_models("gcsa_*"), *close}))
    raise UserError(
        f"unknown model {shown(name)}: choose one of {choices} or any of timm.list_models(). A model of your own: import its module first, by imports= or the entry point gcsa.plugins",
        "model.unknown",
    )


def create_model(name: str, **options: Any) -> nn.Module:
    """timm's model `name` with random weights. An option that is None keeps the model's default. With `symmetry`, it is made exact.

    Raises UserError, in one sentence and before anything is allocated, for an unknown name, an option of another model, and a
    value out of its range.
    """
    check_name(name)
    checked = check_options(name, options)
    symmetry = {key: checked.pop(key) for key in SYMMETRY if key in checked}
    try:
        network = timm.create_model(name, pretrained=False, **checked)
    except (TypeError, AssertionError) as error:
        named = ", ".join(f"{key}={value!r}" for key, value in checked.items())
        raise UserError(
            f"timm model {name!r} does not take {named or 'these arguments'}: {one_line(error)}", "model.arguments"
        ) from error
    if not symmetry:
        return network
    wrapped = symmetrize(network, symmetry["symmetry"], symmetry.get("symmetry_group", "d4"))
    vars(wrapped)["_model_args"] = {
        **getattr(network, "_model_args", {}),
        **symmetry,
    }  # which timm writes with the weights
    return wrapped


def classifier_names(model: nn.Module) -> list[str]:
    """The names of what `get_classifier()` returns; timm's distilled models have two."""
    get_classifier = getattr(model, "get_classifier", None)
    heads = get_classifier() if callable(get_classifier) else ()
    heads = heads if isinstance(heads, tuple | list) else (heads,)
    return [name for name, module in model.named_modules() if any(module is head for head in heads)]
