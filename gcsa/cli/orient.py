"""Tell how pages lie, and make them upright: `gcsa orient scans/ --output orientations.csv --fix upright/ --deskew`.

The table has one row for each image: `file`, `orientation`, `probability`, `blank`, `doubtful` and `skew`. The orientation is the angle in
degrees, counter-clockwise, by which the page is rotated, and the skew the angle by which it is still rotated once it is upright; of a
blank page there is neither. A page is doubtful where the probability is below 0.9: somebody has to look at it, and --fix leaves it as it
is. A name in .json gives a list of objects instead.

Exit codes: 0, all images; 1, some images could not be read or written, which are listed on stderr, and the others are in the table;
2, wrong arguments, before anything is read; 3, all images, but some pages are doubtful, which are listed on stderr; 130, interrupted: the
same command goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import UserError
from gcsa.cli.arguments import add_inputs, add_run, add_threads, check_folder, check_stems, find_images
from gcsa.cli.errors import Parser
from gcsa.cli.output import DOUBTFUL, SCREEN, part_of, written
from gcsa.cli.running import check_run, compute_on, how, running, settings

LEDGER = "gcsa_orient.ledger"
TABLES = (".csv", ".json")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa orient",
        description="Measures by how many degrees pages are rotated, and writes a table with a row for each.",
        epilog="Exit code 1 if an image could not be read or written: it is listed on stderr, and the others are in the table. "
        "Exit code 3 if a page is doubtful, for its probability is below 0.9: look at those that stderr lists.",
    )
    add_inputs(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=SCREEN,
        help="table to write, whose name ends in .csv or .json; it is written whole or not at all (default: the screen)",
    )
    parser.add_argument(
        "--fix",
        metavar="FOLDER",
        help="folder to write upright copies of all images to; a JPEG that was rotated is encoded anew, other formats lose nothing; doubtful pages are left as they are",
    )
    parser.add_argument(
        "--deskew",
        action="store_true",
        help="with --fix: rotate the copies by their skew too, which interpolates their pixels",
    )
    parser.add_argument("--fix-doubtful", action="store_true", help="with --fix: make doubtful pages upright as well")
    add_run(parser)
    add_threads(parser)
    return parser.parse_intermixed_args(argv)


def _check(args: argparse.Namespace, images: Sequence[Path]) -> None:
    if args.output != SCREEN:
        if not args.output.lower().endswith(TABLES):
            raise UserError(f"--output {args.output} must end in {' or '.join(TABLES)}", "output.suffix")
        check_writable(args.output)
    for name in ("deskew", "fix_doubtful"):
        if getattr(args, name) and args.fix is None:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} is about copies: add --fix FOLDER", f"{name}.without_fix")
    if args.fix is not None:
        folder = Path(args.fix)
        inside = [image for image in images if image.resolve().parent == folder.resolve()]
        if inside:
            raise UserError(
                f"--fix {args.fix} holds {inside[0]}, which would be overwritten: name another folder",
                "fix.holds_inputs",
            )
        check_stems(((image.name, image) for image in images), "fix")
        check_folder(folder, images[0].name, "fix")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running() as stack:
        images = find_images(args.inputs, recursive=True)
        check_run(args, images)
        _check(args, images)
        going = how(stack, args, _work)
        from gcsa.batch import Run
        from gcsa.tasks.recognition.pages.upright import rows_of, warn_doubtful, write_rows

        work = _work(args)
        if args.fix is not None:
            Path(args.fix).mkdir(parents=True, exist_ok=True)
        ledger = part_of(args.output) if args.fix is None else Path(args.fix) / LEDGER
        with Run(images, work, ledger, going, in_folder=args.fix is not None) as run:
            outcome = run.do()
            doubtful = False
            if rows := rows_of(run):
                with written(args.output) as stream:
                    write_rows(stream, rows, args.output.lower().endswith(".json"))
                if args.output != SCREEN:
                    print(f"{args.output}: {len(rows)} images")
                doubtful = warn_doubtful(rows, args.fix is not None and not args.fix_doubtful)
        return outcome.tell("made upright" if args.fix is not None else "read") or (DOUBTFUL if doubtful else 0)


def _work(args: argparse.Namespace) -> Any:
    """What is done with an image, in this process or another."""
    from gcsa.tasks.recognition.pages.orientation import stored_scorer
    from gcsa.tasks.recognition.pages.upright import OrientWork
    from gcsa.weights.fingerprint import digest

    compute_on(args.threads)
    args.fingerprint = digest(stored_scorer(), {}, "gcsa orient")  # another version may bring other weights
    return OrientWork(args.fix, args.deskew, args.fix_doubtful, settings(args))
