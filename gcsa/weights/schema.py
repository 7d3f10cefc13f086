"""What checkpoints and folders of weights say, each entry of a closed list, with its type and range."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from gcsa._utils.errors import UserError, reworded
from gcsa._utils.paths import composed
from gcsa._utils.published import ADAPTER_CONFIG, list_models, list_weights, published
from gcsa._utils.validation import MAX_SIDE, is_int, is_number
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
PREPROCESSING = ("input_size", "mean", "std", "label_names")
"""Entries of `Weights.preprocessing`, in timm's terms."""
ABOUT = ("data", "license", "results")
"""What a folder may say for people to read; nothing depends on it."""
CORE = {"task", "architecture", "model_args", "pretrained_cfg", *PREPROCESSING, *ABOUT}
OF_TIMM = {"num_classes", "num_features", "global_pool", "label_descriptions"}
"""What else timm's `save_for_hf` writes."""


@dataclass(frozen=True)
class Weights:
    """The content of a checkpoint or of a folder of weights, each entry checked.

    Attributes:
        source: the file or folder, for messages.
        task: the package in `gcsa.tasks` that builds the network.
        architecture: the name of the network, or of the encoder of a recogniser.
        options: keyword arguments of that network, which checks them when it is made.
        tensors: the state dict, on the CPU, finite.
        preprocessing: in timm's terms: `input_size` (C, H, W), `mean` and `std` of each channel on the 0..1 scale, and
            `label_names`, as far as the file has them.
        about: entries for people, `ABOUT`, as far as the file has them.
        entries: what the task stores beside, as the file has it. The task reads it by `entry`, which checks it.
    """

    source: str
    task: str
    architecture: str
    options: dict[str, Any]
    tensors: dict[str, Tensor]
    preprocessing: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, Any] = field(default_factory=dict)

    def entry(self, key: str, check: Callable[[Any], bool], expected: str) -> Any:
        """The entry `key` of the task, None where the file has none. Raises UserError, naming the file and what was `expected`, for one
        that does not pass `check`."""
        value = self.entries.get(key)
        if value is not None and not check(value):
            raise UserError(
                f"{self.source} cannot be read: its {key} is {_shown(value)}, not {expected}", "weights.entry"
            )
        return value


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
        content["calibration"] = hyper.get("calibration")
        options |= {key: hyper[key] for key in ("num_classes", "in_chans") if key in hyper}
        content |= {"model_args": options, **(hyper.get("preprocessing") or {})}
        tensors = {
            name.removeprefix("model."): tensor
            for name, tensor in stored["state_dict"].items()
            if name.startswith("model.")
        }
    except DAMAGE as error:
        raise UserError(
            f"{path} is damaged or not a checkpoint of train.py ({type(error).__name__})", "checkpoint.damaged"
        ) from error
    if hyper.get("adapter"):
        merged = path.resolve().parent.parent / "weights"
        raise UserError(
            f"{path} has an adapter: give local-dir:{merged}, the weights folder of its run, merged",
            "checkpoint.adapter",
        )
    return check_weights(str(path), content, tensors)


def _read_folder(folder: Path, source: str) -> Weights:
    if (folder / ADAPTER_CONFIG).is_file():
        raise UserError(
            f"{source} is an adapter: name its base, whole weights, where a model is wanted", "weights.adapter"
        )
    for file in (CONFIG, TENSORS):
        if not (folder / file).is_file():
            close = difflib.get_close_matches(source, list_weights(), 1)
            meant = f"did you mean {close[0]}? Or " if close else ""
            what = f"{source} is a file, not a folder" if folder.is_file() else f"there is no {folder / file}"
            raise FileNotFoundError(
                f"{what}: {meant}name a folder of weights as train.py writes it, or one of {', '.join(list_models())}"
            )
    return check_weights(source, read_json(folder / CONFIG), read_tensors(folder / TENSORS))


def check_weights(source: str, config: Mapping[str, Any], tensors: dict[str, Any]) -> Weights:
    """The weights that `config`, the content of a config.json, and `tensors` describe.

    Without "task" they are those of a classifier, as timm's `save_for_hf` writes them. Raises ValueError as `read`.
    """
    options, cfg = config.get("model_args", {}), config.get("pretrained_cfg", {})
    task, architecture = config.get("task", CLASSIFICATION), config.get("architecture")
    try:
        for key, value in (("model_args", options), ("pretrained_cfg", cfg)):
            if not isinstance(value, dict):
                raise UserError(f"its {key} must be an object, not {_shown(value)}", "weights.entry_object")
        if not all(isinstance(key, str) for key in options):
            raise UserError("its model_args must have names", "weights.entry_names")
        for key, value in (("task", task), ("architecture", architecture)):
            if not isinstance(value, str) or not NAME.fullmatch(value):
                raise UserError(f"its {key} must be a name, not {_shown(value)}", "weights.entry_name")
        options = {"num_classes": config.get("num_classes"), **options}
        options = {key: value for key, value in options.items() if value is not None}
        preprocessing = _check_preprocessing({**cfg, **{key: config[key] for key in PREPROCESSING if key in config}})
    except ValueError as error:
        raise reworded(error, f"{source} cannot be read: {error}", "weights.damaged_entry") from error
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_complex():
            raise UserError(
                f"{source} holds something else than a dense tensor of numbers called {name[:100]}", "weights.dense"
            )
        # A view of few numbers as many takes no space in the file, but would take it here.
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise UserError(
                f"{source} holds fewer numbers than its {name[:100]} needs: it is damaged", "weights.too_short"
            )
    check_finite(source, tensors)
    about = {key: config[key] for key in ABOUT if key in config}
    entries = {key: value for key, value in config.items() if key not in CORE | OF_TIMM and value is not None}
    return Weights(source, task, architecture, options, tensors, preprocessing, about, entries)  # type: ignore[arg-type]


def are_label_names(names: Any) -> TypeGuard[Sequence[str]]:
    """Whether these are names of classes, in a list or a tuple."""
    return (
        isinstance(names, list | tuple)
        and len(names) <= MOST_NAMES
        and all(isinstance(name, str) for name in names)
        and len({*map(composed, names)}) == len(names)  # by their names, scores are told apart
    )


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
            raise UserError(f"its {key} is {_shown(value)}", "weights.preprocessing")
        checked[key] = tuple(map(composed, value)) if key == "label_names" else tuple(value)
    _, height, width = checked.get("input_size", (1, 1, 1))
    if height * width > MAX_SIDE**2:  # no tensor says so: a convolutional network takes images of any size
        raise UserError(
            f"its input_size of {height} x {width} pixels is too large: at most {MAX_SIDE} x {MAX_SIDE}, 16 megapixels",
            "weights.input_size",
        )
    return checked


def _shown(value: Any) -> str:
    return repr(value)[:60]
