"""A model to a file: `gcsa export gcsa_tiny --format onnx --output gcsa_tiny.onnx`; --help lists the options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gcsa._utils.errors import UserError
from gcsa._utils.published import published
from gcsa.cli.errors import Parser, user_errors
from gcsa.export import FORMATS
from gcsa.export.bioimageio import write_bioimageio
from gcsa.export.formats import check_file, export
from gcsa.export.hub import write_hub
from gcsa.export.images import read_images
from gcsa.models.create import create_model
from gcsa.tasks import load
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.kraken.file import write_kraken
from gcsa.tasks.segmentation import Segmenter

KRAKEN = "kraken"
"""A format of another kind: the weights of a recogniser, not folded, for kraken's own command (see `gcsa.tasks.recognition.kraken`)."""
HUB = "hub"
BIOIMAGEIO = "bioimageio"
LARGEST = 4096
"""Pixels a side: attention over more positions takes minutes and gigabytes where it was a slip of the keyboard."""

SEGMENTED = (256, 256)
"""Pixels of the images of a segmenter by default: a crop of its training."""


def open_model(source: str, group: str | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """The model that `source` names, and what a file of it should say: a .ckpt of train.py, a folder of weights of any kind, or
    a name in timm, which gives random weights and takes another `group`. Raises FileNotFoundError and ValueError, naming the source."""
    path = Path(source.removeprefix("local-dir:"))
    if not source.startswith("local-dir:") and path.suffix != ".ckpt" and not path.is_dir():
        return create_model(source, group=group), {}
    if group is not None:
        raise UserError(f"--group {group} is for a name in timm: {source} has a group already")
    predictor = load(source)
    return predictor.exported(), predictor.describe()


def default_size(model: Any) -> tuple[int, int, int]:
    """(C, H, W) of the images that the model was made for; a line of 12 times its height, and `SEGMENTED` for a segmenter."""
    if isinstance(model, Segmenter):
        return model.in_chans, *SEGMENTED
    if isinstance(model, CTCRecognizer):
        return 1, model.height, 12 * model.stride * (model.height // model.stride)
    channels, height, width = model.pretrained_cfg["input_size"]
    return getattr(model, "in_chans", channels), height, width


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="gcsa export", description="Writes a model in a format that runs elsewhere.")
    what = "a name in timm, a .ckpt of train.py, a folder of weights, or the name of published ones"
    parser.add_argument("model", help=what)
    parser.add_argument("--format", choices=[*FORMATS, HUB, BIOIMAGEIO, KRAKEN], required=True, help="hub: a folder")
    parser.add_argument("--output", required=True, metavar="FILE", help="of hub: a new folder")
    parser.add_argument("--group", help='such as "c8", for a name in timm')
    parser.add_argument(
        "--size", type=_side, nargs=2, metavar=("H", "W"), help="of the images; default: the model's own"
    )
    parser.add_argument("--any-size", action="store_true", help="also any height and width that the strides divide")
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help="pictures such as the model is to see: onnx-int8 is calibrated on them, other formats are compared",
    )
    args = parser.parse_args(argv)
    if args.format == KRAKEN and (args.size or args.any_size or args.images):
        parser.error("--format kraken takes lines of any width: drop --size, --any-size and --images")
    if args.format in (HUB, BIOIMAGEIO) and (args.group or args.size or args.any_size or args.images):
        parser.error(
            f"{args.format} takes trained weights as they are: leave out --group, --size, --any-size, --images"
        )
    if args.images is not None and args.model.endswith(".ckpt"):
        parser.error("a .ckpt does not hold how its images are normalised: name the weights folder beside it")
    if args.format == "onnx-int8" and args.images is None:
        parser.error("onnx-int8 is calibrated on pictures such as the model is to see: give --images FOLDER")
    return args


def _side(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of pixels from 1 to {LARGEST}")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 0. Raises SystemExit: 2 for an error that the user can mend, 1 for any other."""
    args = _arguments(argv)
    with user_errors():
        if args.format == HUB:
            folder = write_hub(args.model, args.output)
            size_mb = sum(part.stat().st_size for part in folder.iterdir()) / 1e6
            print(f"{folder} (hub, {size_mb:.1f} MB) holds the same weights; its README.md says how they are loaded")
            return 0
        file = Path(args.output)
        if args.format == BIOIMAGEIO:
            error = write_bioimageio(args.model, file)
            size_mb = file.stat().st_size / 1e6
            print(
                f"{file} (bioimageio, {size_mb:.1f} MB) differs from the model by {error:.1e}: bioimageio test {file}"
            )
            return 0
        check_file(file, args.format)
        model, about = open_model(str(published(args.model) or args.model), args.group)
        if args.format == KRAKEN:
            if not isinstance(model, CTCRecognizer):
                raise UserError(f"--format kraken is for recognisers of text lines, and {args.model} is none")
            write_kraken(model, file)
            print(f"{file} (kraken, {file.stat().st_size / 1e6:.1f} MB): kraken ... ocr -m {file}")
            return 0
        channels, *size = default_size(model)
        height, width = args.size or size
        torch.manual_seed(0)
        shape = (channels, height, width)
        images = None if args.images is None else read_images(args.images, model, shape)
        error = export(model, file, args.format, shape, args.any_size, images, about)
        print(f"{file} ({args.format}, {file.stat().st_size / 1e6:.1f} MB) differs from the model by {error:.1e}")
    return 0
