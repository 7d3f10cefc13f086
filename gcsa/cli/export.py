"""A model to a file: `gcsa export gcsa_tiny --format onnx --output gcsa_tiny.onnx`; --help lists the options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import UserError
from gcsa._utils.published import published
from gcsa.cli.arguments import count
from gcsa.cli.errors import Parser, user_errors
from gcsa.export import FORMATS

if TYPE_CHECKING:
    from torch import nn

OF_WEIGHTS = {"hub": "trained weights", "bioimageio": "segmenters", "kraken": "recognisers of text lines"}
"""Formats that predictors write (`exporters`), and what for."""
LARGEST = 4096
"""Pixels a side: attention over more positions takes minutes and gigabytes where it was a slip of the keyboard."""


def open_model(source: str, group: str | None = None) -> tuple[nn.Module, dict[str, Any], tuple[int, int, int]]:
    """The model that `source` names, what a file of it should say, and (C, H, W) of the images that it was made for: a .ckpt of
    train.py, a folder of weights of any kind, or a name in timm, which gives random weights and takes another `group`. Raises
    FileNotFoundError and ValueError, naming the source."""
    from gcsa.models.create import create_model
    from gcsa.tasks import load
    from gcsa.tasks.base import default_size

    if not _is_trained(source):
        model = create_model(source, group=group)
        return model, {}, default_size(model)
    if group is not None:
        raise UserError(f"--group {group} is for a name in timm: {source} has a group already", "group.of_weights")
    predictor = load(source)
    return predictor.exported(), predictor.describe(), predictor.input_size


def _is_trained(source: str) -> bool:
    path = Path(source)
    return source.startswith("local-dir:") or path.suffix == ".ckpt" or path.is_dir() or published(source) is not None


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="gcsa export", description="Writes a model in a format that runs elsewhere.")
    what = "published weights, a folder of weights, a .ckpt of train.py, or a name in timm"
    parser.add_argument("model", metavar="WEIGHTS", help=what)
    parser.add_argument(
        "--format",
        choices=[*FORMATS, *OF_WEIGHTS],
        required=True,
        help="format to write; hub is a folder for timm and the Hugging Face hub",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="file to write; for hub, a new folder")
    parser.add_argument("--group", help="group of the network, such as c8, for a name in timm")
    parser.add_argument(
        "--size",
        type=count(LARGEST),
        nargs=2,
        metavar=("H", "W"),
        help="height and width of the images (default: the model's own)",
    )
    parser.add_argument(
        "--any-size",
        action="store_true",
        help="let the exported network take any height and width that its strides divide",
    )
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help="images of the kind that the model will see: onnx-int8 is calibrated on them, other formats are compared with the model on them",
    )
    args = parser.parse_args(argv)
    if args.format == "kraken" and (args.size or args.any_size or args.images):
        parser.error("--format kraken takes lines of any width: drop --size, --any-size and --images")
    if args.format in ("hub", "bioimageio") and (args.group or args.size or args.any_size or args.images):
        parser.error(
            f"{args.format} takes trained weights as they are: leave out --group, --size, --any-size, --images"
        )
    if args.images is not None and args.model.endswith(".ckpt"):
        parser.error("a .ckpt does not hold how its images are normalised: name the weights folder beside it")
    if args.format == "onnx-int8" and args.images is None:
        parser.error("onnx-int8 is calibrated on images of the kind that the model will see: give --images FOLDER")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 0. Raises SystemExit: 2 for an error that the user can mend, 1 for any other."""
    args = _arguments(argv)
    with user_errors():
        file = Path(args.output)
        if args.format in OF_WEIGHTS:
            from gcsa.tasks import load
            from gcsa.tasks.hub import check_new

            (check_new if args.format == "hub" else check_writable)(file)
            exporters = load(args.model).exporters if _is_trained(args.model) else {}
            if args.format not in exporters:
                raise UserError(
                    f"--format {args.format} is for {OF_WEIGHTS[args.format]}, and {args.model} is none",
                    "format.weights",
                )
            print(exporters[args.format](args.model, file))
            return 0
        import torch

        from gcsa.export.formats import check_file, export
        from gcsa.tasks.calibration import image_files, read_images

        check_file(file, args.format)
        if args.images is not None:
            image_files(args.images)
        model, about, (channels, *size) = open_model(str(published(args.model) or args.model), args.group)
        height, width = args.size or size
        torch.manual_seed(0)
        shape = (channels, height, width)
        images = None if args.images is None else read_images(args.images, model, shape)
        error = export(model, file, args.format, shape, args.any_size, images, about)
        print(f"{file} ({args.format}, {file.stat().st_size / 1e6:.1f} MB) differs from the model by {error:.1e}")
    return 0
