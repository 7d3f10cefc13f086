"""A model to measure, from a checkpoint, a folder of weights or a name, checked against the data before any is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm
import torch
from torch import nn

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.published import CONFIG, published
from gcsa.models.create import check_name, create_model
from gcsa.tasks import load
from gcsa.tasks.classification.data import GCSADataModule
from gcsa.weights import read

FOLDERS = ("local-dir:", "hf-hub:")


def load_model(source: str, data: GCSADataModule) -> tuple[nn.Module, bool]:
    """The timm model that `source` names, and whether its weights are trained; `data` is asked for its sizes only, and from
    now on normalises its images, and makes them squares, as the weights say.

    `source` is a .ckpt of train.py, a folder of weights (local-dir:, hf-hub: or its path), the name of published weights, or another
    name in timm, which gives random weights. Raises FileNotFoundError for a missing file, and ValueError for an unknown
    name, for a damaged file, for weights that do not fit the architecture, and for a model, an image size or class names
    that `data` does not fit.
    """
    folder = source.startswith(FOLDERS) or (Path(source) / CONFIG).is_file()
    trained = folder or source.endswith(".ckpt") or published(source) is not None
    model = load(source, task="classification").network if trained else create_for(source, data)
    _check_fit(model, source, data)
    if trained:
        _adopt(_preprocessing(source), source, data)
    return model, trained


def _preprocessing(source: str) -> dict[str, Any]:
    """How the images were prepared that `source` was trained on; a checkpoint leaves that to the weights of its run."""
    if not source.endswith(".ckpt"):
        return read(source).preprocessing
    weights = Path(source).resolve().parent.parent / "weights"
    return read(weights).preprocessing if (weights / "config.json").is_file() else {}


def _adopt(preprocessing: dict[str, Any], source: str, data: GCSADataModule) -> None:
    name, sizes = data.name, preprocessing.get("input_size")
    if sizes is not None and tuple(sizes[1:]) != (data.image_size, data.image_size):
        raise UserError(
            f"{source} was trained on images of {sizes[1]} x {sizes[2]} and data={name} has {data.image_size} x "
            f"{data.image_size}: set data.image_size={sizes[1]}, or choose other data"
        )
    names = tuple(preprocessing.get("label_names", data.class_names))
    if names != tuple(data.class_names):
        raise UserError(
            f"{source} tells {_listed(names)} apart and data={name} {_listed(data.class_names)}: name the classes alike"
        )
    for key in ("mean", "std"):
        if key in preprocessing:
            setattr(data, key, tuple(preprocessing[key]))
    if "pad" in preprocessing and hasattr(data, "pad"):
        data.pad = preprocessing["pad"]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")


def create_for(name: str, data: GCSADataModule) -> nn.Module:
    """The model that timm calls `name`, with random weights, for `data`. Raises ValueError for an unknown name."""
    fixed = getattr(timm.get_pretrained_cfg(check_name(name)), "fixed_input_size", False)
    sizes = {"img_size": data.image_size} if fixed else {}
    return create_model(name, num_classes=data.num_classes, in_chans=data.in_chans, **sizes)


def _check_fit(model: nn.Module, source: str, data: GCSADataModule) -> None:
    channels, size, name = data.in_chans, data.image_size, data.name
    if model.num_classes != data.num_classes:
        raise UserError(
            f"{source} tells {model.num_classes} classes apart and data={name} has {data.num_classes}: "
            "choose the data that it was trained on"
        )
    wanted = getattr(model, "in_chans", channels)
    if wanted != channels:
        raise UserError(f"{source} takes {wanted} channels and data={name} has {channels}: choose other data")
    if hasattr(model, "check_input_size"):
        model.check_input_size(size, size)  # type: ignore[operator]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, channels, size, size))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise UserError(
            f"{source} does not take the {channels} x {size} x {size} images of data={name}: {one_line(error)}"
        ) from error
