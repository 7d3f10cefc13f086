"""A model to measure, from a checkpoint, a folder of weights or a name, checked against the data before any is read."""

from __future__ import annotations

import difflib
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors import SafetensorError
from torch import nn

import gcsa  # noqa: F401  (registers gcsa_* with timm)
from gcsa.data import GCSADataModule

FOLDERS = ("local-dir:", "hf-hub:")
BROKEN_FILE = (OSError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, SafetensorError)
DAMAGE = (*BROKEN_FILE, RuntimeError, KeyError, TypeError, ValueError)


def load_model(source: str, data: GCSADataModule) -> tuple[nn.Module, bool]:
    """The timm model that `source` names, and whether its weights are trained; `data` is asked for its sizes only.

    `source` is a .ckpt of train.py, a folder of weights (local-dir: or hf-hub:), or a name in timm, which gives random
    weights. Raises FileNotFoundError for a missing file, and ValueError for an unknown name, for a damaged file, for
    weights that do not fit the architecture, and for a model that `data` does not fit.
    """
    if source.startswith(FOLDERS):
        model, trained = from_folder(source), True
    elif source.endswith(".ckpt"):
        model, trained = from_checkpoint(Path(source)), True
    else:
        model, trained = from_name(source, data), False
    _check_fit(model, source, data)
    return model, trained


def from_folder(source: str) -> nn.Module:
    """The model of a folder of weights, local-dir: or hf-hub:. Raises as `load_model`."""
    folder = Path(source.removeprefix("local-dir:"))
    if source.startswith("local-dir:") and not (folder / "config.json").is_file():
        raise FileNotFoundError(f"there is no {folder / 'config.json'}: name a folder of weights as train.py writes it")
    try:
        return timm.create_model(source, pretrained=True)
    except DAMAGE as error:
        raise ValueError(f"{source} does not hold a whole timm model: {_first_line(error)}") from error


def from_checkpoint(path: Path) -> nn.Module:
    """The classifier of a .ckpt of train.py. Raises as `load_model`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        made = stored["hyper_parameters"]
        arguments = {**made["model"], "num_classes": made["num_classes"], "in_chans": made["in_chans"]}
        tensors = stored["state_dict"].items()
        weights = {key.removeprefix("model."): value for key, value in tensors if key.startswith("model.")}
    except DAMAGE as error:
        raise ValueError(f"{path} is damaged or not a checkpoint of train.py ({type(error).__name__})") from error
    if made.get("adapter"):
        merged = path.resolve().parent.parent / "weights"
        raise ValueError(f"{path} has an adapter: give local-dir:{merged}, the weights folder of its run, merged")
    model = create(arguments.pop("name"), **arguments)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        name = made["model"]["name"]
        raise ValueError(f"{path} does not fit {name}, the model that it names: {_first_line(error)}") from error
    return model


def from_name(name: str, data: GCSADataModule) -> nn.Module:
    """A model with random weights for `data`. Raises as `load_model`."""
    fixed = timm.is_model(name) and getattr(timm.get_pretrained_cfg(name), "fixed_input_size", False)
    sizes = {"img_size": data.image_size} if fixed else {}
    return create(name, num_classes=data.num_classes, in_chans=data.in_chans, **sizes)


def create(name: str, **arguments: Any) -> nn.Module:
    """timm's model, its errors in one sentence. Raises ValueError for an unknown name or argument."""
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=5)
        choices = ", ".join(sorted({*timm.list_models("gcsa_*"), *close}))
        raise ValueError(f"unknown model {name!r}: give a .ckpt, local-dir:FOLDER or a name in timm, such as {choices}")
    try:
        return timm.create_model(name, **arguments)
    except (TypeError, AssertionError) as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items() if value is not None)
        raise ValueError(f"timm model {name!r} does not take {given}: {_first_line(error)}") from error


def _check_fit(model: nn.Module, source: str, data: GCSADataModule) -> None:
    channels, size, name = data.in_chans, data.image_size, data.name
    if model.num_classes != data.num_classes:
        raise ValueError(
            f"{source} tells {model.num_classes} classes apart and data={name} has {data.num_classes}: "
            "choose the data that it was trained on"
        )
    wanted = getattr(model, "in_chans", channels)
    if wanted != channels:
        raise ValueError(f"{source} takes {wanted} channels and data={name} has {channels}: choose other data")
    if hasattr(model, "check_input_size"):
        model.check_input_size(size, size)  # type: ignore[operator]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, channels, size, size))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ValueError(
            f"{source} does not take the {channels} x {size} x {size} images of data={name}: {_first_line(error)}"
        ) from error


def _first_line(error: BaseException) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "its config.json is not JSON"
    return " ".join(str(error).split())[:200] or type(error).__name__
