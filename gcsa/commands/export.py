"""A model to a file: `python export.py gcsa_tiny --format onnx --output gcsa_tiny.onnx`; --help lists the options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gcsa.checkpoints import make_classifier, read
from gcsa.export.formats import FORMATS, check_file, export
from gcsa.models.create import create_model
from gcsa.ocr.load import make_recognizer
from gcsa.ocr.recognizers.ctc import CTCRecognizer


def open_model(source: str, group: str | None = None) -> nn.Module:
    """The model that `source` names: a .ckpt of train.py, a folder of weights of either kind, or a name in timm, which
    gives random weights and takes another `group`. Raises FileNotFoundError and ValueError, naming the source."""
    path = Path(source.removeprefix("local-dir:"))
    if not source.startswith("local-dir:") and path.suffix != ".ckpt" and not path.is_dir():
        return create_model(source, group=group)
    if group is not None:
        raise ValueError(f"--group {group} is for a name in timm: {source} has a group already")
    weights = read(source)
    return make_classifier(weights) if weights.characters is None else make_recognizer(weights)


def default_size(model: Any) -> tuple[int, int, int]:
    """(C, H, W) of the images that the model was made for; a line of 12 times its height."""
    if isinstance(model, CTCRecognizer):
        return 1, model.height, 12 * model.stride * (model.height // model.stride)
    channels, height, width = model.pretrained_cfg["input_size"]
    return getattr(model, "in_chans", channels), height, width


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="export.py", description="Writes a model in a format that runs elsewhere.")
    parser.add_argument("model", help="a name in timm, a .ckpt of train.py, or a folder of weights")
    parser.add_argument("--format", choices=list(FORMATS), required=True)
    parser.add_argument("--output", required=True, metavar="FILE")
    parser.add_argument("--group", help='such as "c8", for a name in timm')
    parser.add_argument("--size", type=int, nargs=2, metavar=("H", "W"), help="of the images; default: the model's own")
    parser.add_argument("--any-size", action="store_true", help="also any height and width that the strides divide")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 for an error. Raises SystemExit(2) for wrong arguments."""
    args = _arguments(argv)
    try:
        file = Path(args.output)
        check_file(file, args.format)
        model = open_model(args.model, args.group)
        channels, *size = default_size(model)
        height, width = args.size or size
        torch.manual_seed(0)
        error = export(model, file, args.format, (channels, height, width), args.any_size)
    except (ValueError, OSError, ImportError) as problem:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 2
    print(f"{file} ({args.format}, {file.stat().st_size / 1e6:.1f} MB) differs from the model by {error:.1e}")
    return 0
