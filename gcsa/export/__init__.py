"""A network as a file of another format. What the command lets users choose is here, without torch; what only one task writes, its
predictor does (`exporters`)."""

from importlib import import_module
from typing import Any

FORMATS = ("onnx", "onnx-bf16", "onnx-int8", "pt2", "aoti", "folded", "torchscript")
"""Of one network, which `export` writes."""

__all__ = ["FORMATS", "export"]


def __getattr__(name: str) -> Any:
    if name != "export":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.formats").export
