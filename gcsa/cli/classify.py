"""Classify images: `gcsa classify gcsa_pooled_small.pcam patches/ --output answers.csv`.

The table has one row for each image: `file`, `label`, `confidence`, `doubt`, and the probability of each class by its name. A doubt
above 1 says that the image is unlike those of training; weights that do not tell have no such column. Weights for several labels give
`labels`, with "|" between them, and the probability of each; weights for numbers give these. Answers stay the same when an image rotates
or reflects by an element of the model's group that maps the pixel grid onto itself.

Exit codes: 0, all images; 1, some images could not be read, which are listed on stderr, and the others are in the table; 2, wrong
arguments, before anything is read; 130, interrupted, with no file.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from typing import TextIO

import numpy as np
import torch

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import UserError
from gcsa.cli.arguments import add_hardware, add_images, add_symmetry, device, find_images, symmetrized
from gcsa.cli.batches import answer_all
from gcsa.cli.errors import Parser, tell_failed
from gcsa.cli.output import SCREEN, tell_doubts, written
from gcsa.cli.running import running
from gcsa.integrations import load_classifier
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.classification.targets import Classes, Labels, Numbers


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa classify",
        description="Tells what images show: a table with a row for each.",
        epilog="Exit code 1 if an image could not be read: it is listed on stderr, and the others are classified.",
    )
    add_images(parser, "classified")
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=SCREEN,
        help="ends in .csv; written whole or not at all (default: the screen)",
    )
    add_symmetry(parser)
    add_hardware(parser)
    return parser.parse_intermixed_args(argv)


def _write(
    stream: TextIO,
    names: Iterable[str],
    answers: Array,
    doubts: Iterable[float | None],
    predictor: ClassificationPredictor,
) -> None:
    classes, kind = predictor.class_names, predictor.target.kind
    beside = {Classes.kind: ["label", "confidence"], Labels.kind: ["labels"], Numbers.kind: []}[kind]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file", *beside, *([] if predictor.doubt is None else ["doubt"]), *classes])
    for name, row, doubt in zip(names, answers, doubts, strict=True):
        shown = [f"{value:.6g}" if kind == Numbers.kind else f"{value:.6f}" for value in row]
        shown_doubt = [] if doubt is None else [f"{doubt:.3f}"]
        if kind == Classes.kind:
            best = int(row.argmax())
            writer.writerow([name, classes[best], shown[best], *shown_doubt, *shown])
        elif kind == Labels.kind:
            labels = "|".join(label for label, value in zip(classes, row, strict=True) if value >= 0.5)
            writer.writerow([name, labels, *shown_doubt, *shown])
        else:
            writer.writerow([name, *shown_doubt, *shown])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running(args.threads):
        images = find_images(args.inputs, recursive=True)
        if args.output != SCREEN:
            if not args.output.lower().endswith(".csv"):
                raise UserError(f"--output {args.output} must end in .csv")
            target = check_writable(args.output)
            if any(path.resolve() == target for path in images):
                raise UserError(
                    f"--output {args.output} is one of the images, and would be overwritten: name another file"
                )
        predictor = load_classifier(args.model, args.adapter).to(device(args.device)).fold()
        network = predictor.doubting(symmetrized(predictor.network, args, predictor.group))
        rows, names, failed = answer_all(network, predictor.preprocess, images, args.batch_size)
        if names:
            answers, doubts = predictor.answers(torch.from_numpy(np.concatenate(rows)))
            with written(args.output) as stream:
                _write(stream, names, answers.numpy(), doubts, predictor)
            tell_doubts(zip(names, doubts, strict=True))
            if args.output != SCREEN:
                print(f"{args.output}: {len(names)} images")
        tell_failed(failed, len(images), "classified")
    return 1 if failed else 0
