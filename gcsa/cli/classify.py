"""Classify images: `gcsa classify gcsa_pooled_small.pcam patches/ --output answers.csv`.

The table has one row for each image: `file`, `label`, `confidence`, `ood_score`, and the probability of each class by its name. An OOD score
above 1 says that the image is unlike those of training; weights that do not tell have no such column. Weights for several labels give
`labels`, with "|" between them, and the probability of each; weights for numbers give these. Answers stay the same when an image rotates
or reflects by an element of the model's group that maps the pixel grid onto itself.

Exit codes: 0, all images; 1, some images could not be read, which are listed on stderr, and the others are in the table; 2, wrong
arguments, before anything is read; 130, interrupted, with no file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gcsa._utils.errors import UserError
from gcsa.cli.arguments import add_hardware, add_images, add_symmetry, check_output, device, find_images, symmetrized
from gcsa.cli.errors import Parser
from gcsa.cli.output import SCREEN, warn_out_of_distribution, written
from gcsa.cli.running import compute_on, running


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa classify",
        description="Classifies images, and writes a table with a row for each.",
        epilog="Exit code 1 if an image could not be read: it is listed on stderr, and the others are classified.",
    )
    add_images(parser, "classified")
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=SCREEN,
        help="table to write, whose name ends in .csv; it is written whole or not at all (default: the screen)",
    )
    add_symmetry(parser)
    add_hardware(parser)
    return parser.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running():
        images = find_images(args.inputs, recursive=True)
        if args.output != SCREEN:
            if not args.output.lower().endswith(".csv"):
                raise UserError(f"--output {args.output} must end in .csv", "output.suffix", output=args.output)
            check_output(args.output, images)
        import torch

        from gcsa.tasks import load
        from gcsa.tasks.classification.folder import answer_all, write_answers

        compute_on(args.threads)
        predictor: Any = load(args.model, args.adapter, "classification").to(device(args.device)).fold()
        network = predictor.with_ood_scores(symmetrized(predictor.network, args, predictor.group))
        names, rows, outcome = answer_all(network, predictor.preprocess, images, args.batch_size)
        if names:
            answers, ood_scores = predictor.answers(torch.from_numpy(rows))
            with written(args.output) as stream:
                write_answers(stream, names, answers.numpy(), ood_scores, predictor)
            warn_out_of_distribution(zip(names, ood_scores, strict=True))
            if args.output != SCREEN:
                print(f"{args.output}: {len(names)} images")
        return outcome.tell("classified")
