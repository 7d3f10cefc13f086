"""The creation of a model from a name and options, of a user or of a file.

A file of weights must not choose code, addresses or paths. timm's `create_model` takes addresses, files and folders among its
arguments. Here each family has a closed list of options, each with its type and range.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import timm
from torch import nn

from gcsa._utils import options as declared
from gcsa._utils.errors import UserError, one_line
from gcsa._utils.options import Count, Options, Range, Rate, Side, Width, Word
from gcsa._utils.validation import shown
from gcsa.models import baselines, gcnn, gcsa, gcsa_pyramid, gsa  # noqa: F401 (which register their models)
from gcsa.models.registry import MODEL_OPTIONS

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


@dataclass(frozen=True, kw_only=True)
class SegmenterOptions(Options):
    """Options of the networks of `gcsa.tasks.segmentation` besides those of their encoder."""

    output: Annotated[
        Literal["instances", "classes"], "instances: numbered objects; classes: a class for each pixel"
    ] = "instances"
    num_classes: Annotated[Annotated[int, Range(0, 1_000_000)], "of output=classes"] = 2
    encoder: Annotated[Word | None, "another model of gcsa as encoder"] = None
    rays: Annotated[
        Annotated[int, Range(3, 256)], "of output=instances: directions in which an object's border is measured"
    ] = 32
    decoder_fields: Annotated[Sequence[Width] | None, "regular fields of the decoder, fine to coarse"] = None
    decoder_depth: Annotated[
        Annotated[int, Range(1, 64)] | None, "residual blocks at each resolution of the decoder"
    ] = None
    resolution: Annotated[Annotated[int, Range(1, 64)] | None, "pixels a position of the decoder's finest map"] = None
    pmin: Annotated[Annotated[float, Range(0, 100)], "percentile of an image that becomes 0"] = 1.0
    pmax: Annotated[Annotated[float, Range(0, 100)], "percentile of an image that becomes 1"] = 99.8
    prob_thresh: Annotated[Annotated[float, Range(0.001, 0.999)], "probability from which a pixel can be a centre"] = (
        0.5
    )
    nms_thresh: Annotated[Share, "share of the smaller of two objects that they may have in common"] = 0.4


@dataclass(frozen=True, kw_only=True)
class RecognizerOptions(Options):
    """Options of the recognisers of `gcsa.tasks.recognition` besides those of their encoder."""

    height: Annotated[Annotated[int, Range(1, 1024)], "of the lines in pixels"] = 40
    hidden: Annotated[Width, "channels in front of the classifier"] = 256
    upsample: Annotated[Annotated[int, Range(1, 1024)], "time steps for each column of the encoder's map"] = 2
    drop_rate: Annotated[Rate, "dropout in front of the classifier"] = 0.1
    channels: Annotated[Annotated[int, Range(1, 1024)], "of the crnn's first convolution"] = 20


SEGMENTERS = ("gcsa_unet_tiny", "gcsa_unet_small", "smp_unet_resnet18")
"""Networks of `gcsa.tasks.segmentation`, which are not in timm; the last one is a plain baseline."""


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None. Raises UserError, in one sentence, for an option of no network, and for a value that is
    invalid for every network."""
    return declared.check_options(
        options, *dict.fromkeys(MODEL_OPTIONS.values()), TimmOptions, SegmenterOptions, RecognizerOptions
    )


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
    raise UserError(f"unknown model {shown(name)}: choose one of {choices} or any of timm.list_models()")


def create_model(name: str, **options: Any) -> nn.Module:
    """timm's model `name` with random weights. An option that is None keeps the model's default.

    Raises UserError, in one sentence and before anything is allocated, for an unknown name, an option of another model, and a
    value out of its range.
    """
    check_name(name)
    checked = declared.check_options(options, MODEL_OPTIONS.get(name.partition(".")[0], TimmOptions), owner=name)
    try:
        return timm.create_model(name, pretrained=False, **checked)
    except (TypeError, AssertionError) as error:
        named = ", ".join(f"{key}={value!r}" for key, value in checked.items())
        raise UserError(f"timm model {name!r} does not take {named or 'these arguments'}: {one_line(error)}") from error
