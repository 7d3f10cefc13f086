"""Classify images: `gcsa classify gcsa_pooled_small.pcam patches/ --output answers.csv`.

The table has one row for each image: `file`, `label`, `confidence`, `ood_score`, and the probability of each class by its name. An OOD score
above 1 says that the image is unlike those of training; weights that do not tell have no such column. Weights for several labels give
`labels`, with "|" between them, and the probability of each; weights for numbers give these. Answers stay the same when an image rotates
or reflects by an element of the model's group that maps the pixel grid onto itself.

Exit codes: 0, all images; 1, some images could not be read, which are listed on stderr, and the others are in the table; 2, wrong
arguments, before anything is read; 130, interrupted: the answers so far stay in FILE.part, and the same command goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gcsa._utils.errors import UserError
from gcsa.cli.arguments import (
    add_hardware,
    add_images,
    add_run,
    add_symmetry,
    check_output,
    device,
    find_images,
    symmetrized,
)
from gcsa.cli.errors import Parser
from gcsa.cli.output import SCREEN, part_of, warn_out_of_distribution, written
from gcsa.cli.running import check_run, compute_on, how, mark, running, settings


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
    add_run(parser)
    add_hardware(parser)
    return parser.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running() as stack:
        images = find_images(args.inputs, recursive=True)
        check_run(args, images)
        if args.output != SCREEN:
            if not args.output.lower().endswith(".csv"):
                raise UserError(f"--output {args.output} must end in .csv", "output.suffix", output=args.output)
            check_output(args.output, images)
        going = how(stack, args, _work)
        import torch

        from gcsa.batch import Run
        from gcsa.tasks.classification.folder import collect, write_answers

        work = _work(args)
        predictor = work.predictor
        with Run(images, work, part_of(args.output), going) as run:
            outcome = run.do()
            names, rows = collect(run, predictor.preprocess)
            if names:
                answers, ood_scores = predictor.answers(torch.from_numpy(rows))
                with written(args.output) as stream:
                    write_answers(stream, names, answers.numpy(), ood_scores, predictor)
        if names:
            warn_out_of_distribution(zip(names, ood_scores, strict=True))
            if args.output != SCREEN:
                print(f"{args.output}: {len(names)} images")
        return outcome.tell("classified")


def _work(args: argparse.Namespace) -> Any:
    """What is done with images, in this process or another."""
    import torch

    from gcsa.tasks import load
    from gcsa.tasks.classification.folder import ImageWork
    from gcsa.tasks.classification.targets import Classes

    compute_on(args.threads)
    predictor: Any = load(args.model, args.adapter, "classification").to(device(args.device))
    mark(args, predictor)
    predictor.fold()

    def confidence(rows: Any) -> list[float]:
        return predictor.answers(torch.from_numpy(rows))[0].amax(1).tolist()

    network = predictor.with_ood_scores(symmetrized(predictor.network, args, predictor.group))
    known = confidence if predictor.target.kind == Classes.kind else None
    return ImageWork(predictor, network, args.batch_size, settings(args), confidence=known)
