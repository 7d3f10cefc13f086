"""Weights as a folder that appears whole or not at all, and that `gcsa.load` opens; timm opens those of classifiers."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from timm.models import save_for_hf
from torch import nn

from gcsa._utils.atomic import json_bytes, replacing, replacing_folder
from gcsa.models.create import check_options
from gcsa.weights.files import CONFIG, TENSORS
from gcsa.weights.schema import CLASSIFICATION, PREPROCESSING, Weights
from gcsa.weights.tensors import check_finite

BORDER = {"crop_mode": "border", "crop_pct": 1.0}
"""timm's way to make a whole image a square, with a border in the mean colour: the nearest to one in white or black."""


def to_config(weights: Weights) -> dict[str, Any]:
    """The content of the config.json of `weights`."""
    content: dict[str, Any] = {
        "task": weights.task,
        "architecture": weights.architecture,
        "model_args": weights.options,
    }
    if weights.preprocessing:
        content["pretrained_cfg"] = weights.preprocessing
    return {**content, **weights.entries, **weights.about}


def write(weights: Weights, folder: str | Path) -> Path:
    """Writes `weights` of any task into `folder`, for `read`. Returns it.

    An older folder of that name is replaced. Raises ValueError for numbers that are not finite, and OSError if it cannot
    write.
    """
    folder = Path(folder)
    check_finite(f"{folder} was not written", weights.tensors)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(folder) as fresh:
        save_file({name: tensor.contiguous() for name, tensor in weights.tensors.items()}, fresh / TENSORS)
        (fresh / CONFIG).write_bytes(json_bytes(to_config(weights)))
    return folder


def save_classifier(
    model: nn.Module,
    folder: str | Path,
    about: Mapping[str, Any] | None = None,
    **further: Any,
) -> Path:
    """Writes `model`, made by timm, into a folder that `gcsa.load` and timm's `local-dir:` open. Returns it.

    It holds the keyword arguments of the model, and `about`, `preprocessing` and the `entries` of `Weights`, the last two as `further`
    arguments; None leaves one out. Raises as `write`, and ValueError for keyword arguments that could not be read back.
    """
    folder = Path(folder)
    check_finite(f"{folder} was not written", model.state_dict())
    preprocessing = {key: further.pop(key) for key in PREPROCESSING if further.get(key) is not None}
    entries = {key: value for key, value in further.items() if value is not None}
    beside: dict[str, Any] = {"task": CLASSIFICATION, **(about or {}), **entries}
    if (names := preprocessing.pop("label_names", None)) is not None:
        beside["label_names"] = list(names)
    if "pad" in entries:
        preprocessing |= BORDER
    # safetensors takes no other memory, such as that of channels_last.
    if not all(tensor.is_contiguous() for tensor in model.state_dict().values()):
        model = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(folder) as fresh:
        save_for_hf(model, str(fresh), model_config=beside, safe_serialization=True, data_config=preprocessing)
        content = json.loads((fresh / CONFIG).read_text(encoding="utf-8"))
        check_options(content["architecture"], content.get("model_args", {}))
        (fresh / CONFIG).write_bytes(json_bytes(content))
    return folder


def annotate(folder: str | Path, **about: Any) -> None:
    """Adds what became known later, such as `results`, to the config.json of a folder of weights."""
    config = Path(folder) / CONFIG
    content = json.loads(config.read_text(encoding="utf-8"))
    with replacing(config) as part:
        part.write_bytes(json_bytes(content | about))
