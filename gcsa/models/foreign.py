"""Networks of others: files of ONNX, TorchScript and torch.export, functions, and those of timm with their pretrained weights."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor, nn

from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.models.create import check_name

SUFFIXES = (".onnx", ".pt", ".pth", ".ts", ".pt2")
TIMM = "timm:"
"""Stands before the name of a network of timm."""


class OnnxNetwork(nn.Module):
    """An ONNX file as a module, with a tensor or a tuple of them. Raises MissingExtraError without onnxruntime, and UserError
    for another number of inputs."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError(
                "an ONNX file needs onnxruntime: pip install gcsa-vit[export]", "onnxruntime.missing"
            ) from error
        self.session = onnxruntime.InferenceSession(str(file))
        if len(self.session.get_inputs()) != 1:
            raise UserError(
                f"{file} takes {len(self.session.get_inputs())} inputs: it must take one batch of images", "onnx.inputs"
            )

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


def is_foreign(source: str) -> bool:
    """Whether `source` names a network that is not of gcsa: timm:NAME, a file, or MODULE:FUNCTION."""
    known = ("local-dir:", "hf-hub:")
    of_python = ":" in source and not source.startswith(known) and not Path(source).exists()
    return of_python or Path(source).suffix in (*SUFFIXES, ".py")


def open_network(source: str, trust_code: bool) -> nn.Module:
    """The network in a file .onnx, .pt, .pth or .ts of TorchScript, or .pt2, or MODULE:FUNCTION. All but the first run the code that they hold,
    and are refused without `trust_code`. Raises FileNotFoundError, and UserError for what cannot be opened."""
    if Path(source).suffix == ".py":
        raise UserError(
            f"{source} is a file of Python: name a network in it, {Path(source).stem}:NAME", "network.no_name"
        )
    if not trust_code and Path(source).suffix != ".onnx":
        raise UserError(
            f"{source} runs the code that it holds: load it with trust_code=True if you trust it", "network.trust_code"
        )
    return _of_file(Path(source)) if Path(source).suffix in SUFFIXES else _of_function(source)


def open_timm(name: str) -> nn.Module:
    """A network of timm with its pretrained weights. Raises UserError where they cannot be fetched."""
    check_name(name)
    try:
        network: nn.Module = timm.create_model(name, pretrained=True)
    except Exception as error:  # of timm or the hub's client
        raise UserError(
            f"timm cannot fetch the pretrained weights of {name} ({type(error).__name__}): connect to its hub, or make the network "
            "in a function of yours, and name MODULE:FUNCTION",
            "network.fetch",
        ) from error
    return network.eval()


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
                f"{file} holds tensors, not a network: make the network in a module of yours, load them, and name MODULE:NAME",
                "network.tensors",
            ) from error
        raise UserError(f"{file} cannot be opened as a network ({one_line(error)})", "network.unreadable") from error


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
        raise UserError(
            f"{source} cannot be imported ({type(error).__name__}: {one_line(error)})", "network.import"
        ) from error
    if not callable(function):
        raise UserError(f"{source} is not a function or a module", "network.not_callable")
    return function.eval() if isinstance(function, nn.Module) else FunctionNetwork(function)
