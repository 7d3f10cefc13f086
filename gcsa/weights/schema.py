"""What checkpoints and folders of weights say, each entry of a closed list, with its type and range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.published import ADAPTER_CONFIG, list_weights, published
from gcsa._utils.validation import is_int, is_number
from gcsa.images.prepare import PADS
from gcsa.models.create import SEGMENTERS, check_name, check_options
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

ABOUT = ("data", "license", "results")
"""What a folder may say for people to read; nothing depends on it."""


@dataclass(frozen=True)
class Weights:
    """What a checkpoint or a folder of weights holds, each entry checked.

    Attributes:
        source: where it was read, for messages.
        architecture: a name that timm has registered or, of a recogniser, an encoder's name.
        options: of `create_model` or, of a recogniser, of `CTCRecognizer`.
        tensors: the state dict, on the CPU, finite.
        characters: of a recogniser of text lines, else None.
        kind: "classifier", "recognizer" or "segmenter".
        preprocessing: in timm's terms, of a classifier: `input_size` (C, H, W), `mean` and `std` of each channel on the
            0..1 scale, `label_names`, and `pad`, the colour of the border that makes an image a square, as far as the file
            tells them.
        about: what a person wants to know, `ABOUT`, as far as the file tells it.
    """

    source: str
    architecture: str
    options: dict[str, Any]
    tensors: dict[str, Tensor]
    characters: str | None = None
    preprocessing: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        if self.architecture in SEGMENTERS:
            return "segmenter"
        return "classifier" if self.characters is None else "recognizer"

    @property
    def task(self) -> str:
        return {"segmenter": "segmentation", "classifier": "classification", "recognizer": "recognition"}[self.kind]


def read(source: str | Path) -> Weights:
    """The weights in a .ckpt of train.py, in a folder (local-dir:FOLDER or FOLDER), of a name in `list_weights()`, or in a
    repository of the Hugging Face hub (hf-hub:OWNER/NAME).

    Raises FileNotFoundError for what is not there, and ValueError, naming the file, for one that is damaged, says
    something that weights may not say, or holds an adapter that is not merged.
    """
    text = str(source)
    if text.startswith("hf-hub:"):
        return _read_folder(download(text.removeprefix("hf-hub:")), text)
    path = published(text) or Path(text.removeprefix("local-dir:"))
    if path.suffix == ".ckpt" and not path.is_dir():
        return _read_checkpoint(path)
    return _read_folder(path, text)


def _read_checkpoint(path: Path) -> Weights:
    stored = read_checkpoint(path)
    try:
        hyper = stored["hyper_parameters"]
        options = dict(hyper["model"])
        characters = hyper.get("characters")
        architecture = options.pop("name" if characters is None else "encoder")
        if characters is None:
            options |= {key: hyper[key] for key in ("num_classes", "in_chans") if key in hyper}
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
    return _checked(str(path), architecture, options, tensors, characters)


def _read_folder(folder: Path, source: str) -> Weights:
    if (folder / ADAPTER_CONFIG).is_file():
        raise UserError(f"{source} is an adapter: name its base, whole weights, where a model is wanted")
    for file in (CONFIG, TENSORS):
        if not (folder / file).is_file():
            names = ", ".join(list_weights())
            raise FileNotFoundError(
                f"there is no {folder / file}: name a folder of weights as train.py writes it, or one of {names}"
            )
    config = read_json(folder / CONFIG)
    tensors = read_tensors(folder / TENSORS)
    about = {key: config.pop(key) for key in ABOUT if key in config}
    if "characters" in config:
        return recognizer_weights(source, config, tensors, about)
    options = config.get("model_args", {})
    if not isinstance(options, dict) or not isinstance(config.get("pretrained_cfg", {}), dict):
        raise UserError(f"{folder / CONFIG} is damaged: model_args and pretrained_cfg must be objects")
    beside = {"label_names": config["label_names"]} if isinstance(config.get("label_names"), list) else {}
    preprocessing = _checked_preprocessing(folder / CONFIG, {**config.get("pretrained_cfg", {}), **beside})
    if (pad := config.get("pad")) is not None:
        if pad not in PADS:
            raise UserError(f"{folder / CONFIG} is damaged: its pad is {str(pad)[:60]}")
        preprocessing["pad"] = pad
    options = {"num_classes": config.get("num_classes"), **options}
    return _checked(source, config.get("architecture"), options, tensors, preprocessing=preprocessing, about=about)


def recognizer_weights(
    source: str, config: Mapping[str, Any], tensors: dict[str, Any], about: dict[str, Any] | None = None
) -> Weights:
    """Those of a recogniser whose config.json says `config`. Raises ValueError as `read`, naming `source`."""
    options = dict(config)
    characters, architecture = options.pop("characters", ""), options.pop("encoder", None)
    return _checked(source, architecture, options, tensors, characters, about=about)


def _checked(
    source: str,
    architecture: Any,
    options: dict[Any, Any],
    tensors: dict[str, Any],
    characters: Any = None,
    preprocessing: dict[str, Any] | None = None,
    about: dict[str, Any] | None = None,
) -> Weights:
    try:
        if architecture not in (SEGMENTERS if characters is None else ("crnn",)):
            check_name(architecture)
        # A recogniser's sizes stand beside its encoder's options.
        sizes = {"height": options.get("height"), "upsample": options.get("upsample")} if characters is not None else {}
        for key, value in sizes.items():
            if value is not None and not is_int(value, 1, 1024):
                raise UserError(f"{key} must be a whole number from 1 to 1024, not {str(value)[:60]}")
        given = check_options({key: value for key, value in options.items() if key not in sizes})
        if characters is not None and not (isinstance(characters, str) and len(characters) <= MOST_NAMES):
            raise UserError(f"characters must be a text of at most {MOST_NAMES} characters")
    except ValueError as error:
        raise UserError(f"{source} cannot be read: {error}") from error
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_complex():
            raise UserError(f"{source} holds something else than a dense tensor of numbers called {name[:100]}")
        # A view of few numbers as many takes no room in the file, but would take it here.
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise UserError(f"{source} holds fewer numbers than its {name[:100]} needs: it is damaged")
    check_finite(source, tensors)
    sizes = {key: value for key, value in sizes.items() if value is not None}
    return Weights(source, architecture, {**given, **sizes}, tensors, characters, preprocessing or {}, about or {})


def _checked_preprocessing(file: Path, cfg: dict[str, Any]) -> dict[str, Any]:
    checks: dict[str, Callable[[Any], bool]] = {
        "input_size": lambda sizes: len(sizes) == 3 and all(is_int(size, 1, 8192) for size in sizes),
        "mean": lambda means: len(means) <= 1024 and all(is_number(mean, -1e6, 1e6) for mean in means),
        "std": lambda stds: len(stds) <= 1024 and all(is_number(std, 1e-12, 1e6) for std in stds),
        "label_names": lambda names: len(names) <= MOST_NAMES and all(isinstance(name, str) for name in names),
    }
    checked: dict[str, Any] = {}
    for key, check in checks.items():
        value = cfg.get(key)
        if value is None:
            continue
        if not isinstance(value, list) or not check(value):
            raise UserError(f"{file} is damaged: its pretrained_cfg.{key} is {str(value)[:60]}")
        checked[key] = tuple(value)
    return checked
