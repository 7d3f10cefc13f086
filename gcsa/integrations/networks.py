"""Networks of others for the commands: of timm, files of ONNX, TorchScript and torch.export, and functions."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor, nn

from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.groups import Group, group as make_group
from gcsa.images.prepare import Prepare
from gcsa.integrations import load_classifier
from gcsa.models.create import check_name
from gcsa.tasks.classification.targets import Classes

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, for files and functions, which do not say theirs."""
KINDS = ("classifier", "embedding", "segmenter", "reader")
"""What a network can be audited as."""
SUFFIXES = (".onnx", ".pt", ".pth", ".ts", ".pt2")


@dataclass(frozen=True)
class Subject:
    """A network of anybody: prepared images (B, C, S, S) to outputs (B, D) of `kind`; `group` is the one that it was built for."""

    kind: str
    network: nn.Module
    prepare: Prepare
    group: Group = field(default_factory=lambda: make_group("c1"))


class OnnxNetwork(nn.Module):
    """An ONNX file as a module, with a tensor or a tuple of them. Raises MissingExtraError without onnxruntime, and UserError
    for another number of inputs."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("an ONNX file needs onnxruntime: pip install gcsa-vit[export]") from error
        self.session = onnxruntime.InferenceSession(str(file))
        if len(self.session.get_inputs()) != 1:
            raise UserError(f"{file} takes {len(self.session.get_inputs())} inputs: it must take one batch of images")

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        (given,) = self.session.get_inputs()
        found = self.session.run(None, {given.name: images.cpu().numpy()})
        outputs = tuple(torch.from_numpy(np.asarray(output)) for output in found)
        return outputs if len(outputs) > 1 else outputs[0]


class FunctionNetwork(nn.Module):
    """A function of images (B, C, S, S) as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images)


class ForeignSegmenter(nn.Module):
    """A segmenter of somebody else, with the interface of `Segmenter`: images (B, 3, H, W) to maps (B, out_chans, H, W).

    Args:
        network: gives a map of images, of their height and width, as `outputs` says.
        name: of messages.
        outputs: one of `OUTPUTS`.

    Raises:
        UserError: a network that gives something else, here or for an image.
    """

    def __init__(self, network: nn.Module, name: str, outputs: str) -> None:
        super().__init__()
        self.network, self.name, self.outputs, self.in_chans = network, name, outputs, 3
        self.output = "instances" if outputs == "instances" else "classes"
        self.size_divisor, self.min_size, self.margin = 32, 64, None
        self.group = make_group("c1")
        self.options: dict[str, Any] = {}
        with torch.inference_mode():
            channels = self._maps(torch.zeros(1, 3, 64, 96)).shape[1]
        if outputs == "instances" and channels < 4:
            raise UserError(f"{name} gives {channels} channels: a probability and 3 distances or more are wanted")
        if outputs == "probability" and channels != 1:
            raise UserError(f"{name} gives {channels} channels: one probability is wanted")
        self.rays, self.num_classes = channels - 1, max(2, channels)
        self.fixed = nn.Parameter(torch.zeros(()), requires_grad=False)  # says device and dtype, which a file does not

    def _maps(self, images: Tensor) -> Tensor:
        """The output for images, all parts in one. Raises UserError for one that is no map of their size, or not finite."""
        shape = " x ".join(map(str, images.shape[1:]))
        try:
            maps = self.network(images)
            maps = torch.cat(maps, 1) if isinstance(maps, tuple | list) else maps
        except Exception as error:  # of a stranger's network
            raise UserError(f"{self.name} does not take an image of {shape}: {one_line(error)}") from error
        given = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
        if not isinstance(maps, Tensor) or maps.ndim != 4 or maps.shape[2:] != images.shape[2:]:
            raise UserError(
                f"{self.name} gives {given} for an image of {shape}: a map (B, C, H, W) of its size is wanted"
            )
        if not maps.isfinite().all():
            raise UserError(f"{self.name} gives NaN or infinite values for an image of {shape}")
        return maps

    def forward(self, images: Tensor) -> Tensor:
        maps = self._maps(images)
        first = maps[:, :1]
        is_share = bool(((first >= -1e-3) & (first <= 1 + 1e-3)).all())
        if self.outputs == "classes":
            if maps.shape[1] > 1:
                return maps
            if is_share:
                raise UserError(
                    f"{self.name} gives one value from 0 to 1 for each pixel, as a probability is: name --outputs probability"
                )
            return torch.cat([torch.zeros_like(maps), maps], 1)
        if not is_share:
            raise UserError(
                f"{self.name} gives values beyond 0 to 1 in the first channel, which is to be a probability"
            )
        logits = first.clamp(1e-6, 1 - 1e-6).logit()
        return torch.cat(
            [logits, maps[:, 1:]] if self.outputs == "instances" else [torch.zeros_like(logits), logits], 1
        )


def is_foreign(source: str) -> bool:
    """Whether `source` names a network that is not of gcsa."""
    known = ("local-dir:", "hf-hub:")
    of_python = ":" in source and not source.startswith(known) and not Path(source).exists()
    return of_python or Path(source).suffix in SUFFIXES


def open_segmenter(source: str, outputs: str | None = None) -> ForeignSegmenter:
    """The segmenter of somebody else in a file .onnx, .pt, .pth, .ts or .pt2, or in MODULE:FUNCTION. Raises as `ForeignSegmenter`."""
    network = _of_file(Path(source)) if Path(source).suffix in SUFFIXES else _of_function(source)
    return ForeignSegmenter(network, source, outputs or "classes").eval()


def open_subject(source: str, kind: str | None = None, size: int | None = None, adapter: str | None = None) -> Subject:
    """The network that `source` names.

    Args:
        source: what `gcsa.load` takes, of a classifier; timm:NAME; a file .onnx, .pt, .pth or .ts of TorchScript, or .pt2; or
            MODULE:FUNCTION, which takes normalised images (B, 3, S, S).
        kind: of `KINDS`; by default "embedding" for timm:NAME, else "classifier".
        size: pixels a side; by default the network's, or 224.
        adapter: of weights of gcsa; it is merged.

    Raises:
        UserError, FileNotFoundError: a source that cannot be opened, or a kind that it cannot be.
    """
    suffix = Path(source).suffix
    if adapter is not None and is_foreign(source):
        raise UserError(f"an adapter is for weights of gcsa, and {source} is none")
    if suffix == ".py":
        raise UserError(f"{source} is a file of Python: name a network in it, {Path(source).stem}:NAME")
    if source.startswith("timm:"):
        return _of_timm(source.removeprefix("timm:"), kind or "embedding", size)
    if suffix in SUFFIXES:
        return Subject(kind or "classifier", _of_file(Path(source)), Prepare(size or 224, MEAN, STD))
    if is_foreign(source):
        return Subject(kind or "classifier", _of_function(source), Prepare(size or 224, MEAN, STD))
    predictor = load_classifier(source, adapter).fold()
    if kind != "embedding" and not isinstance(predictor.target, Classes):
        raise UserError(
            f"{source} was trained for target={predictor.target.kind}, not for classes: take --kind embedding"
        )
    network: nn.Module = predictor.embedding if kind == "embedding" else predictor.network
    prepare = predictor.preprocess
    prepare = replace(prepare, size=size or prepare.size)
    return Subject(kind or "classifier", network, prepare, predictor.group)


def _of_timm(name: str, kind: str, size: int | None) -> Subject:
    check_name(name)
    options: dict[str, Any] = {"num_classes": 0} if kind == "embedding" else {}
    try:
        network: Any = timm.create_model(name, pretrained=True, **options)
    except Exception as error:  # of timm or the hub's client
        raise UserError(
            f"the pretrained weights of {name} cannot be fetched: {one_line(error)}: make the network in a function of yours, and "
            "name MODULE:FUNCTION"
        ) from error
    cfg = timm.data.resolve_model_data_config(network)
    return Subject(kind, network.eval(), Prepare(size or cfg["input_size"][-1], tuple(cfg["mean"]), tuple(cfg["std"])))


def _of_file(file: Path) -> nn.Module:
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}")
    try:
        if file.suffix == ".onnx":
            return OnnxNetwork(file)
        if file.suffix == ".pt2":
            program = torch.export.load(file).module()
            return FunctionNetwork(lambda images: program(images))  # as a module within it refuses eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TorchScript is old, and the user's file is in it
            return torch.jit.load(file, map_location="cpu").eval()
    except UserError:
        raise
    except Exception as error:  # of onnxruntime and torch
        if file.suffix in (".pt", ".pth") and _holds_tensors(file):
            raise UserError(
                f"{file} holds tensors, not a network: make the network in a module of yours, load them, and name MODULE:NAME"
            ) from error
        raise UserError(f"{file} cannot be opened as a network ({one_line(error)})") from error


def _holds_tensors(file: Path) -> bool:
    """Whether a file is a state dict or a checkpoint with one."""
    try:
        return isinstance(torch.load(file, map_location="meta", weights_only=True), dict)
    except Exception:  # whatever else it is
        return False


def _of_function(source: str) -> nn.Module:
    module, _, name = source.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        function: Any = getattr(import_module(module), name)
    except Exception as error:  # anything that the user's module does
        raise UserError(f"{source} cannot be imported ({type(error).__name__}: {one_line(error)})") from error
    if not callable(function):
        raise UserError(f"{source} is not a function or a module")
    return function.eval() if isinstance(function, nn.Module) else FunctionNetwork(function)
