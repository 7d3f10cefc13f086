"""The one place where a model is made from a name and options, whether a user or a file gave them.

A file of weights must not choose what happens on a machine (design section 7). timm's `create_model` takes addresses,
files and folders among its arguments; here a closed list says which options there are, each with its type and range.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import timm
from torch import nn

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.validation import is_int, is_number, shown
from gcsa.groups import group

NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)?")
WORD = re.compile(r"[a-z0-9_]{0,32}")

Check = Callable[[Any], bool]


def whole(low: int, high: int) -> tuple[Check, str]:
    return lambda value: is_int(value, low, high), f"a whole number from {low} to {high}"


def number(low: float, high: float) -> tuple[Check, str]:
    return lambda value: is_number(value, low, high), f"a number from {low:g} to {high:g}"


def rate() -> tuple[Check, str]:
    return lambda value: is_number(value, 0, 1) and value < 1, "a number of at least 0 and below 1"


def choice(*names: str) -> tuple[Check, str]:
    return lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}"


def word() -> tuple[Check, str]:
    return lambda value: isinstance(value, str) and bool(WORD.fullmatch(value)), "a short word"


def flag() -> tuple[Check, str]:
    return lambda value: isinstance(value, bool), "true or false"


def either(*kinds: tuple[Check, str]) -> tuple[Check, str]:
    return lambda value: any(check(value) for check, _ in kinds), " or ".join(text for _, text in kinds)


def several(kind: tuple[Check, str], most: int = 8) -> tuple[Check, str]:
    """A list of one to `most` values of a kind."""

    def check(values: Any) -> bool:
        return isinstance(values, list | tuple) and 1 <= len(values) <= most and all(kind[0](v) for v in values)

    return check, f"a list of up to {most}, each {kind[1]}"


def is_group(value: Any) -> bool:
    try:
        return isinstance(value, str) and group(value).order <= 128
    except ValueError:
        return False


WIDTH, COUNT, SIDE = whole(1, 16384), whole(1, 256), whole(1, 8192)
RADIUS = either(whole(0, 1024), choice("all"))

OPTIONS: dict[str, tuple[Check, str]] = {
    # of every image classifier
    "num_classes": whole(0, 1_000_000),
    "in_chans": whole(1, 1024),
    "img_size": either(SIDE, several(SIDE, 2)),
    "global_pool": word(),
    "drop_rate": rate(),
    "drop_path_rate": rate(),
    "proj_drop_rate": rate(),
    "attn_drop_rate": rate(),
    "mlp_drop_rate": rate(),
    "pos_drop_rate": rate(),
    # of the equivariant families
    "group": (is_group, "c or d and a number of rotations, of at most 128 elements, such as c4, c8 or d4"),
    "fields": either(WIDTH, several(WIDTH)),
    "scalar_fields": whole(0, 16384),
    "depth": COUNT,
    "conv_depth": whole(0, 4096),
    "depths": several(COUNT),
    "heads": either(COUNT, several(COUNT)),
    "attention": choice("spatial", "group", "linear"),
    "radius": RADIUS,
    "radii": several(either(RADIUS, (lambda value: value is None, "null"))),
    "feature_maps": choice("regular", "invariant"),
    "shape": choice("square", "disc"),
    "features": WIDTH,
    "kernel_size": whole(1, 15),
    "separable": flag(),
    "kv_stride": whole(1, 64),
    "mlp_ratio": number(0.01, 64),
    "layer_scale": number(0, 10),
    "stem_strides": several(whole(1, 64)),
    "stem_fields": several(WIDTH),
    "head_fields": whole(0, 16384),
    "padding_mode": choice("zeros", "circular"),
    "basis": choice("full", "band"),
    "stem_norm": choice("layer", "batch"),
    "low_pass": flag(),
    "stem_separable": flag(),
    "positions": flag(),
    "centred": flag(),
    "encoding": choice("corrected", "gevit", "original"),
    "lift_radius": whole(0, 64),
    "lift_heads": COUNT,
    "stride": whole(1, 64),
    "waves": whole(1, 1024),
    # of segmenters, in gcsa.tasks.segmentation
    "output": choice("instances", "classes"),
    "encoder": word(),
    "rays": whole(3, 256),
    "decoder_fields": several(WIDTH),
    "decoder_depth": whole(1, 64),
    "resolution": whole(1, 64),
    "pmin": number(0, 100),
    "pmax": number(0, 100),
    "prob_thresh": number(0.001, 0.999),
    "nms_thresh": number(0, 1),
    # of the baselines
    "position": choice("none", "absolute", "relative_s1", "relative_s2"),
    "patch_size": either(whole(1, 1024), several(whole(1, 1024), 2)),
    "dim": WIDTH,
    "redraw_interval": whole(0, 1_000_000_000),
    "width": whole(2, 1024),
    "clip": whole(1, 1024),
    "projected": WIDTH,
    "clusters": whole(1, 1024),
    "channels": whole(1, 1024),
    "hidden": WIDTH,
    # of recognisers of text lines, in gcsa.tasks.recognition
    "height": whole(1, 1024),
    "upsample": whole(1, 1024),
    # of timm's own models
    "embed_dim": either(WIDTH, several(WIDTH)),
    "num_heads": either(COUNT, several(COUNT)),
    "qkv_bias": flag(),
    "qk_norm": flag(),
    "init_values": number(0, 10),
    "class_token": flag(),
    "reg_tokens": whole(0, 256),
    "no_embed_class": flag(),
    "dynamic_img_size": flag(),
    "window_size": either(whole(1, 1024), several(whole(1, 1024), 2)),
    "dims": several(WIDTH),
    "layers": several(COUNT),
    "base_width": whole(1, 4096),
    "cardinality": whole(1, 4096),
    "stem_width": whole(1, 4096),
    "output_stride": whole(1, 32),
    "bn_momentum": number(0, 1),
    "bn_eps": number(0, 1),
}
"""Name to check and to the words for what passes it; None always stands for the model's own default."""

SEGMENTERS = ("gcsa_unet_tiny", "gcsa_unet_small", "smp_unet_resnet18")
"""Networks of `gcsa.tasks.segmentation`, which timm does not know; the last is the plain one that they are compared with."""


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None. Raises ValueError, in one sentence, for an unknown one or an impossible value."""
    for key, value in options.items():
        if key not in OPTIONS:
            close = difflib.get_close_matches(str(key), OPTIONS)
            hint = f"did you mean {' or '.join(close)}?" if close else "gcsa.models.create.OPTIONS lists what there is"
            raise UserError(f"unknown model option {str(key)[:60]!r}: {hint}")
        check, wanted = OPTIONS[key]
        if value is not None and not check(value):
            raise UserError(f"model option {key}={shown(value)} must be {wanted}")
    return {key: value for key, value in options.items() if value is not None}


def check_name(name: Any) -> str:
    """`name`, a model that timm has registered, with a tag that it has or none. Raises ValueError, with the nearest names,
    for any other."""
    if isinstance(name, str) and NAME.fullmatch(name) and timm.is_model(name):
        with suppress(RuntimeError):  # of a tag that this model does not have
            timm.get_pretrained_cfg(name)
            return name
    names = [*timm.list_models(), *timm.list_models(pretrained=True)]
    close = difflib.get_close_matches(str(name)[:100], names, n=5, cutoff=0.5)
    sizes = [model for model in timm.list_models("gcsa_*") if not re.search(r"_[cd]\d+$", model)]
    choices = ", ".join(sorted({*sizes, *close}))
    raise UserError(f"unknown model {shown(name)}: choose one of {choices} or any of timm.list_models()")


def create_model(name: str, **options: Any) -> nn.Module:
    """The model that timm calls `name`, with random weights; options that are None keep the model's own default.

    Raises ValueError, in one sentence and before anything is allocated, for a name that timm does not know, for an
    option that is not in `OPTIONS` or out of its range; and for one that this model does not take.
    """
    check_name(name)
    given = check_options(options)
    try:
        return timm.create_model(name, pretrained=False, **given)
    except (TypeError, AssertionError) as error:
        named = ", ".join(f"{key}={value!r}" for key, value in given.items())
        raise UserError(f"timm model {name!r} does not take {named or 'these arguments'}: {one_line(error)}") from error
