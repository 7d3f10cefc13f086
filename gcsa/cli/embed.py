"""Embed images: `gcsa embed gcsa_pooled_small.pcam patches/ --output features.h5`.

The output has one row of features for each image, with its name. They stay the same when an image rotates or reflects by an
element of the model's group that maps the pixel grid onto itself. An .h5 file has the datasets `features` (N, D) and
`files`, with the weights' name and the normalisation as attributes; a .parquet file has the columns `file` and `features`,
and the same as metadata.

`gcsa embed gcsa_pooled_small.pcam slides/ --patches --output features/` embeds the patches of slides: a file for each (`gcsa.tasks.classification.slides`).

Exit codes: 0, all images; 1, some images could not be read, which are listed on stderr, and the others are in the file (no
file if there are none); 2, wrong arguments, before anything is read; 3, all slides, but most patches of some are unlike the images of
training; 130, interrupted: the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gcsa._utils.atomic import replacing
from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.batch import Result, say
from gcsa.cli.arguments import (
    NETWORKS,
    add_hardware,
    add_images,
    add_plane,
    add_run,
    add_symmetry,
    check_folder,
    check_output,
    check_outside,
    check_stems,
    device,
    find_images,
    level,
    number,
    roi,
    symmetrized,
)
from gcsa.cli.errors import Parser
from gcsa.cli.output import DOUBTFUL, part_of, warn_slides_out_of_distribution
from gcsa.cli.running import check_run, compute_on, how, mark, running, settings
from gcsa.images.choices import MAX, MPP_RANGE
from gcsa.images.folders import SLIDES, SUFFIXES, ZARR

LEDGER = "gcsa_embed.ledger"
FORMATS = (".parquet", ".h5")
CUT = ("mpp", "slide_mpp", "tissue", "level", "roi", "channel", "z", "time")
"""The options of --patches that say which patches there are."""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa embed",
        description="Computes features of images that stay the same when the images rotate.",
        epilog="Exit code 1 if an image could not be read: it is listed on stderr, and the others are embedded. Exit code 3 if most "
        "patches of a slide are unlike the images of training: stderr names it. A file .pt or .pt2 and a function run the code that they hold.",
    )
    add_images(parser, "embedded", NETWORKS)
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="file to write, whose name ends in .parquet or .h5; it is written whole or not at all. With --patches: a folder",
    )
    _add_patches(parser)
    add_symmetry(parser)
    add_run(parser)
    add_hardware(parser)
    return parser.parse_intermixed_args(argv)


def _add_patches(parser: argparse.ArgumentParser) -> None:
    """Adds --patches and its options."""
    scale = number(*MPP_RANGE)
    parser.add_argument(
        "--patches",
        action="store_true",
        help="embed patches of slides, in a file for each slide; the same command continues a run that was stopped",
    )
    parser.add_argument(
        "--mpp",
        type=scale,
        metavar="MICROMETRES",
        help="size of a pixel of the patches in micrometres (default: as in the weights)",
    )
    parser.add_argument(
        "--slide-mpp",
        type=scale,
        metavar="MICROMETRES",
        help="size of a pixel of the slides in micrometres, for slides that do not state it",
    )
    parser.add_argument(
        "--tissue",
        type=number(0, 1),
        metavar="SHARE",
        help="least share of tissue in a patch (default 0.25); 0 takes all patches, as fluorescence needs, whose ground is dark",
    )
    parser.add_argument(
        "--level",
        type=level,
        metavar="N",
        help="take the pixels of this level of the slide instead of --mpp; 0 is the finest",
    )
    parser.add_argument(
        "--roi", type=roi, metavar="X,Y,WIDTH,HEIGHT", help="embed the patches of this rectangle, in pixels of level 0"
    )
    add_plane(parser, "slice to read from a stack, counted from 1; max: the largest value over all slices", MAX)
    parser.add_argument(
        "--heatmap",
        metavar="CLASS",
        help="also draw the probability of this class over each slide, by a classifier of gcsa",
    )


def _check_options(args: argparse.Namespace) -> None:
    """Raises UserError for options of --patches without it."""
    given = [name for name in (*CUT, "heatmap") if getattr(args, name) is not None]
    if given and not args.patches:
        value = getattr(args, given[0])
        value = (
            f"{value:g}"
            if isinstance(value, float)
            else ",".join(map(str, value))
            if isinstance(value, tuple)
            else value
        )
        raise UserError(f"--{given[0].replace('_', '-')} {value} is of --patches: add --patches", "patches.needed")
    if args.level is not None and args.mpp is not None:
        raise UserError(
            f"--level {args.level} has micrometres a pixel of its own: leave out --mpp {args.mpp:g}", "mpp.with_level"
        )


def _check_folder(name: str, slides: Sequence[Path]) -> None:
    """Raises UserError where `name` can be no folder, and for slides whose files would be the same."""
    folder = Path(name)
    if folder.suffix.lower() in (".h5", ".parquet", *SUFFIXES) and not folder.is_dir():
        raise UserError(
            f"--output {name} is a folder with --patches: name it without {folder.suffix}", "output.suffix_of_folder"
        )
    check_stems(((path.stem, path) for path in slides), "embed")
    check_outside(folder, slides)
    check_folder(folder, f"{slides[0].stem}.h5")


def _check_output(name: str, images: Sequence[Path]) -> None:
    suffix = Path(name).suffix
    if suffix not in FORMATS:
        raise UserError(f"--output {name} must end in {' or '.join(FORMATS)}", "output.suffix")
    if suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:  # newer ones cannot be imported beside an older NumPy
            raise MissingExtraError(
                f"a .parquet file needs pyarrow ({one_line(error)}): pip install gcsa-vit[parquet], or name an .h5 file",
                "parquet.missing",
            ) from error
    check_output(name, images)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running() as stack:
        _check_options(args)
        images = find_images(args.inputs, recursive=True, suffixes=(*SUFFIXES, *SLIDES, ZARR))
        check_run(args, images)
        if args.patches:
            _check_folder(args.output, images)
        else:
            _check_output(args.output, images)
        going = how(stack, args, _work)
        from gcsa.batch import Run
        from gcsa.tasks.classification.folder import collect, write_features

        work = _work(args)
        if args.patches:
            Path(args.output).mkdir(parents=True, exist_ok=True)
        if not work.exact:
            print(f"{args.model} has no group of rotations: its features change when an image rotates", file=sys.stderr)
        ledger = Path(args.output) / LEDGER if args.patches else part_of(args.output)
        with Run(images, work, ledger, going, in_folder=args.patches) as run:
            outcome = run.do(_tell if args.patches else None)
            if not args.patches:
                names, rows = collect(run, work.prepare)
                if names:
                    with replacing(args.output) as part:
                        write_features(part, rows, names, work.about)
                    print(f"{args.output}: {len(names)} images, {rows.shape[1]} features each")
            slides = [(str(slide), found.values) for slide, found in run.results() if args.patches and found.finished]
        unlike = warn_slides_out_of_distribution((name, row["patches"], row["ood_patches"]) for name, row in slides)
        return outcome.tell("embedded") or (DOUBTFUL if unlike else 0)


def _tell(slide: Path, result: Result) -> None:
    if result.finished:
        say(result.values["said"])


def _work(args: argparse.Namespace) -> Any:
    """What is done with images or slides, in this process or another."""
    from gcsa.images.slides import Roi
    from gcsa.models.foreign import is_foreign
    from gcsa.tasks import load
    from gcsa.tasks.classification.folder import ImageWork
    from gcsa.tasks.classification.slides import Cut, SlideWork

    compute_on(args.threads)
    heat = _heat(args)
    task = None if is_foreign(args.model) else "classification"
    predictor: Any = load(args.model, args.adapter, task, trust_code=True)
    mark(args, predictor)
    predictor.fold()
    network = symmetrized(predictor.embedding, args, predictor.group).to(device(args.device))
    exact = len(predictor.group.exact_elements) > 1 or args.symmetry is not None
    prepare = predictor.preprocess
    about = {"weights": args.model, "size": prepare.size, "mean": prepare.mean, "std": prepare.std}
    about |= {} if args.adapter is None else {"adapter": args.adapter}
    about |= {} if args.symmetry is None else {"symmetry": f"{args.symmetry}, {args.group or 'd4'}"}
    about |= {} if args.rotations is None else {"rotations": args.rotations}
    if args.patches:
        options = {name: getattr(args, name) for name in CUT}
        if not is_foreign(args.model):
            network = predictor.with_ood_scores(network)
        cut = Cut(**options | {"roi": None if args.roi is None else Roi(*args.roi)})
        how_to = args.batch_size, settings(args), heat, args.overwrite
        work: Any = SlideWork(network, prepare, Path(args.output), about, cut, *how_to)
    else:
        work = ImageWork(predictor, network, args.batch_size, settings(args), "--patches embeds its patches")
        work.about = about
    work.exact = exact
    return work


def _heat(args: argparse.Namespace) -> Any:
    """What --heatmap asks for; None without it. Raises UserError for a network that gives features only, and as `probability_of`."""
    from gcsa.models.foreign import is_foreign
    from gcsa.tasks import load
    from gcsa.tasks.classification.heatmap import probability_of
    from gcsa.tasks.classification.slides import Heat

    if args.heatmap is None:
        return None
    if is_foreign(args.model):
        raise UserError(
            f"--heatmap {args.heatmap} is the probability of a class, and {args.model} gives features only: name a classifier of gcsa",
            "heatmap.no_classifier",
        )
    predictor: Any = load(args.model, args.adapter, "classification")
    return Heat(args.heatmap, probability_of(predictor.fold(), args.heatmap))
