"""Weights as a folder that appears whole or not at all, and that this package and timm open."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from timm.models import save_for_hf
from torch import nn

from gcsa._utils.atomic import give_usual_mode
from gcsa.models.create import check_options
from gcsa.weights.files import BORDER, CONFIG, TENSORS
from gcsa.weights.tensors import check_finite


def save_classifier(
    model: nn.Module, folder: str | Path, about: Mapping[str, Any] | None = None, **preprocessing: Any
) -> Path:
    """Writes `model`, made by timm, into a folder that `gcsa.load` and timm's `local-dir:` open. Returns it.

    The model's keyword arguments travel along; so does `preprocessing` in timm's terms (`input_size` (C, H, W) in pixels,
    `mean` and `std` of each channel on the 0..1 scale, `label_names`) with `pad`, and `about`, see `Weights`. The folder appears
    whole or not at all; an older one of that name is replaced. Raises ValueError for weights that are not finite and for
    options that could not be read back, and OSError if it cannot write.
    """
    names, pad = (preprocessing.pop(key, None) for key in ("label_names", "pad"))
    beside: dict[str, Any] = {"task": "classification"}
    if names is not None:
        beside["label_names"] = list(names)
    if pad is not None:
        beside |= {"pad": pad}
        preprocessing |= BORDER
    # safetensors takes no other memory, such as that of channels_last.
    if not all(tensor.is_contiguous() for tensor in model.state_dict().values()):
        model = copy.deepcopy(model).to(memory_format=torch.contiguous_format)

    def write(fresh: Path) -> None:
        save_for_hf(model, str(fresh), model_config=beside, safe_serialization=True, data_config=preprocessing)
        check_options(json.loads((fresh / CONFIG).read_text(encoding="utf-8")).get("model_args", {}))

    return _write_folder(model, Path(folder), write, about)


def save_recognizer(model: Any, folder: str | Path, about: Mapping[str, Any] | None = None) -> Path:
    """Writes a `CTCRecognizer` into a folder that `gcsa.load` opens; as `save_classifier`."""

    def write(fresh: Path) -> None:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, fresh / TENSORS)
        _write_json(fresh / CONFIG, recognizer_config(model))

    return _write_folder(model, Path(folder), write, about)


def recognizer_config(model: Any) -> dict[str, Any]:
    """The content of the config.json of a `CTCRecognizer`."""
    options = dict(model.options)
    content = {"task": "recognition", "architecture": options.pop("encoder"), "model_args": options}
    return {**content, "characters": model.charset.characters}


def save_segmenter(model: Any, folder: str | Path, about: Mapping[str, Any] | None = None) -> Path:
    """Writes a `Segmenter` into a folder that `gcsa.load` opens; as `save_classifier`."""

    def write(fresh: Path) -> None:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, fresh / TENSORS)
        content = {"task": "segmentation", "architecture": model.name, "model_args": model.options}
        _write_json(fresh / CONFIG, content)

    return _write_folder(model, Path(folder), write, about)


def annotate(folder: str | Path, **about: Any) -> None:
    """Adds what became known later, such as `results`, to the config.json of a folder of weights."""
    config = Path(folder) / CONFIG
    content = json.loads(config.read_text(encoding="utf-8"))
    part = config.with_name(f".{CONFIG}.part")
    try:
        _write_json(part, content | about)
        os.replace(part, config)
    finally:
        part.unlink(missing_ok=True)


def _write_folder(
    model: nn.Module, folder: Path, write: Callable[[Path], None], about: Mapping[str, Any] | None
) -> Path:
    check_finite(f"{folder} was not written", model.state_dict())
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(fresh)
        if about:
            annotate(fresh, **about)
        for file in fresh.iterdir():
            give_usual_mode(file)
        fresh.chmod(0o755)  # temporary folders are closed to everybody else
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
