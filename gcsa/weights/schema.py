"""What checkpoints and folders of weights say, each entry of a closed list, with its type and range."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.published import ADAPTER_CONFIG, list_models, list_weights, published
from gcsa._utils.validation import MAX_SIDE, is_int, is_number
from gcsa.images.prepare import PADS
from gcsa.images.tiff import MPP_RANGE
from gcsa.models.create import NAME
from gcsa.weights.files import (
    CONFIG,
    DAMAGE,
    MOST_NAMES,
    TENSORS,
    download,
    read_checkpoint,
    read_json,
    read_tensors,
)
from gcsa.weights.tensors import check_finite

CLASSIFICATION = "classification"
"""The task of a folder that does not name one: timm writes such folders."""
BESIDE = ("label_names", "pad", "target", "mpp")
"""Entries of `Weights.preprocessing` that stand beside timm's own in config.json: timm knows none of these names."""
DOUBT = {"mean", "axes", "variances", "rest", "limit"}
"""The entries of `Weights.doubt`."""
ABOUT = ("data", "license", "results")
"""What a folder may say for people to read; nothing depends on it."""


@dataclass(frozen=True)
class Weights:
    """The content of a checkpoint or of a folder of weights, each entry checked.

    Attributes:
        source: the file or folder, for messages.
        task: the room in `gcsa.tasks` that builds the network.
        architecture: the name of the network, or of the encoder of a recogniser.
        options: keyword arguments of that network, which checks them when it is made.
        tensors: the state dict, on the CPU, finite.
        preprocessing: in timm's terms: `input_size` (C, H, W), `mean` and `std` of each channel on the 0..1 scale,
            `label_names`, `pad`, the colour of the border that makes an image a square, `target`, what the outputs of a
            classifier are, and `mpp`, the micrometres a pixel, as far as the file has them.
        about: entries for people, `ABOUT`, as far as the file has them.
        characters: the charset of a recogniser of text lines, else None.
        doubt: what the features of training images are like, the entry of `gcsa.tasks.doubt.Doubt`, else None.
    """

    source: str
    task: str
    architecture: str
    options: dict[str, Any]
    tensors: dict[str, Tensor]
    preprocessing: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    characters: str | None = None
    doubt: dict[str, Any] | None = None


def read(source: str | Path) -> Weights:
    """Reads a .ckpt of train.py, a folder (FOLDER or local-dir:FOLDER), published weights by their name in
    `list_models()`, or a repository of the Hugging Face hub (hf-hub:OWNER/NAME).

    Raises FileNotFoundError for a missing file, and ValueError, naming the file, for one that is damaged, has an entry
    out of its range, or holds an adapter that is not merged.
    """
    text = str(source)
    if text.startswith("hf-hub:"):
        return _read_folder(download(text.removeprefix("hf-hub:")), text)
    path = published(text) or Path(text.removeprefix("local-dir:"))
    if path.suffix == ".ckpt" and not path.is_dir():
        return _read_checkpoint(path)
    if not (path / CONFIG).is_file() and (path / "weights" / CONFIG).is_file():
        path = path / "weights"  # of a run of train.py
    return _read_folder(path, text)


def _read_checkpoint(path: Path) -> Weights:
    stored = read_checkpoint(path)
    try:
        hyper = stored["hyper_parameters"]
        options = dict(hyper["model"])
        content = {"task": hyper["task"], "architecture": options.pop("name"), "characters": hyper.get("characters")}
        options |= {key: hyper[key] for key in ("num_classes", "in_chans") if key in hyper}
        preprocessing = dict(hyper.get("preprocessing") or {})
        content |= {key: preprocessing.pop(key, None) for key in BESIDE}
        content |= {"model_args": options, "pretrained_cfg": preprocessing}
        tensors = {
            name.removeprefix("model."): tensor
            for name, tensor in stored["state_dict"].items()
            if name.startswith("model.")
        }
    except DAMAGE as error:
        raise UserError(f"{path} is damaged or not a checkpoint of train.py ({type(error).__name__})") from error
    if hyper.get("adapter"):
        merged = path.resolve().parent.parent / "weights"
        raise UserError(f"{path} has an adapter: give local-dir:{merged}, the weights folder of its run, merged")
    return check_weights(str(path), content, tensors)


def _read_folder(folder: Path, source: str) -> Weights:
    if (folder / ADAPTER_CONFIG).is_file():
        raise UserError(f"{source} is an adapter: name its base, whole weights, where a model is wanted")
    for file in (CONFIG, TENSORS):
        if not (folder / file).is_file():
            close = difflib.get_close_matches(source, list_weights(), 1)
            meant = f"did you mean {close[0]}? Or " if close else ""
            raise FileNotFoundError(
                f"there is no {folder / file}: {meant}name a folder of weights as train.py writes it, or one of "
                f"{', '.join(list_models())}"
            )
    return check_weights(source, read_json(folder / CONFIG), read_tensors(folder / TENSORS))


def check_weights(source: str, config: Mapping[str, Any], tensors: dict[str, Any]) -> Weights:
    """The weights that `config`, the content of a config.json, and `tensors` describe.

    Without "task" they are those of a classifier, as timm's `save_for_hf` writes them. Raises ValueError as `read`.
    """
    options, cfg = config.get("model_args", {}), config.get("pretrained_cfg", {})
    task, architecture, characters = (
        config.get("task", CLASSIFICATION),
        config.get("architecture"),
        config.get("characters"),
    )
    try:
        for key, value in (("model_args", options), ("pretrained_cfg", cfg)):
            if not isinstance(value, dict):
                raise UserError(f"its {key} must be an object, not {_shown(value)}")
        if not all(isinstance(key, str) for key in options):
            raise UserError("its model_args must have names")
        for key, value in (("task", task), ("architecture", architecture)):
            if not isinstance(value, str) or not NAME.fullmatch(value):
                raise UserError(f"its {key} must be a name, not {_shown(value)}")
        if characters is not None and not (isinstance(characters, str) and len(characters) <= MOST_NAMES):
            raise UserError(f"its characters must be a text of at most {MOST_NAMES} characters")
        options = {"num_classes": config.get("num_classes"), **options}
        options = {key: value for key, value in options.items() if value is not None}
        doubt = _check_doubt(config.get("doubt"))
        preprocessing = _check_preprocessing({**cfg, **{key: config[key] for key in BESIDE if key in config}})
    except ValueError as error:
        raise UserError(f"{source} cannot be read: {error}") from error
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_complex():
            raise UserError(f"{source} holds something else than a dense tensor of numbers called {name[:100]}")
        # A view of few numbers as many takes no room in the file, but would take it here.
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise UserError(f"{source} holds fewer numbers than its {name[:100]} needs: it is damaged")
    check_finite(source, tensors)
    about = {key: config[key] for key in ABOUT if key in config}
    return Weights(source, task, architecture, options, tensors, preprocessing, about, characters, doubt)  # type: ignore[arg-type]


def are_label_names(names: Any) -> TypeGuard[Sequence[str]]:
    """Whether these are names of classes, in a list or a tuple."""
    return isinstance(names, list | tuple) and len(names) <= MOST_NAMES and all(isinstance(name, str) for name in names)


def _check_preprocessing(values: dict[str, Any]) -> dict[str, Any]:
    checks: dict[str, Callable[[Any], bool]] = {
        "input_size": lambda sizes: len(sizes) == 3 and all(is_int(size, 1, 8192) for size in sizes),
        "mean": lambda means: len(means) <= 1024 and all(is_number(mean, -1e6, 1e6) for mean in means),
        "std": lambda stds: len(stds) <= 1024 and all(is_number(std, 1e-12, 1e6) for std in stds),
        "label_names": are_label_names,
    }
    checked: dict[str, Any] = {}
    for key, check in checks.items():
        value = values.get(key)
        if value is None:
            continue
        if not isinstance(value, list | tuple) or not check(value):
            raise UserError(f"its {key} is {_shown(value)}")
        checked[key] = tuple(value)
    _, height, width = checked.get("input_size", (1, 1, 1))
    if height * width > MAX_SIDE**2:  # no tensor says so: a convolutional network takes images of any size
        raise UserError(
            f"its input_size of {height} x {width} pixels is too large: at most {MAX_SIDE} x {MAX_SIDE}, 16 megapixels"
        )
    if (pad := values.get("pad")) is not None:
        if pad not in PADS:
            raise UserError(f"its pad is {_shown(pad)}: it must be one of {', '.join(map(str, PADS))}")
        checked["pad"] = pad
    if (mpp := values.get("mpp")) is not None:
        if not is_number(mpp, *MPP_RANGE):
            raise UserError(
                f"its mpp is {_shown(mpp)}: it must be micrometres a pixel, from {MPP_RANGE[0]} to {MPP_RANGE[1]:g}"
            )
        checked["mpp"] = float(mpp)
    if (target := values.get("target")) is not None:
        if not isinstance(target, dict) or not all(_is_target_entry(value) for value in target.values()):
            raise UserError(f"its target is {_shown(target)}: it must be an object of a kind and numbers")
        checked["target"] = target
    return checked


def _check_doubt(values: Any) -> dict[str, Any] | None:
    """The entry `doubt`. Raises UserError for one that is damaged."""
    if values is None:
        return None
    if not isinstance(values, dict) or values.keys() != DOUBT:
        raise UserError(f"its doubt is {_shown(values)}: it must be an object of {', '.join(sorted(DOUBT))}")
    mean, axes, variances = (values[key] for key in ("mean", "axes", "variances"))
    for key in ("mean", "variances"):
        if not _are_numbers(values[key], -1e30 if key == "mean" else 1e-30):
            raise UserError(f"the {key} of its doubt is {_shown(values[key])}")
    if (
        not isinstance(axes, list)
        or len(axes) != len(variances)
        or not all(_are_numbers(axis, -1.001, 1.001) and len(axis) == len(mean) for axis in axes)
    ):
        raise UserError(
            f"the axes of its doubt are {_shown(axes)}: it must be a row of {len(mean)} numbers for each variance"
        )
    for key in ("rest", "limit"):
        if not is_number(values[key], 1e-30, 1e30):
            raise UserError(f"the {key} of its doubt is {_shown(values[key])}: it must be a positive number")
    return values


def _are_numbers(values: Any, low: float, high: float = 1e30) -> bool:
    return isinstance(values, list) and 1 <= len(values) <= MOST_NAMES and all(is_number(v, low, high) for v in values)


def _is_target_entry(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= MOST_NAMES and all(is_number(number, -1e30, 1e30) for number in value)
    return isinstance(value, str) and len(value) <= 100


def _shown(value: Any) -> str:
    return repr(value)[:60]
