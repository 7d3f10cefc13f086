"""Find objects in images: `gcsa segment gcsa_unet_tiny.nuclei slide.tif images/ --output found/`.

Weights are a .ckpt of train.py, a folder of weights or the name of published ones. Of each image the output folder gets a label
image, an overlay, a table and GeoJSON (see `gcsa.tasks.segmentation.writers`), and one table of all images; a line on stdout names it and what was found.
Exit codes: 0, all images; 1, something could not be read or written, listed on stderr; 2, wrong arguments, before anything is
read; 130, interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float
from gcsa.cli.arguments import (
    add_hardware,
    add_plane,
    add_run,
    check_folder,
    check_outside,
    check_stems,
    count,
    device,
    factor,
    find_images,
    level,
    number,
    roi,
    share,
)
from gcsa.cli.errors import Parser
from gcsa.cli.output import warn_out_of_distribution
from gcsa.cli.running import check_run, compute_on, how, mark, running, settings
from gcsa.images.choices import MAX, MPP_RANGE, STAINS
from gcsa.images.folders import SLIDES, SUFFIXES, ZARR
from gcsa.tasks.segmentation.choices import ALL, AUTO, ENDINGS, KINDS, OUTPUTS, PROPERTIES, TILE

LEDGER = "gcsa_segment.ledger"
KEPT = 2**25
"""Bytes of the largest freed block that is kept: the maps of tiles are larger, and would leave gaps."""
SCALES = 0.01, 100
NONE = "none"
"""The network sees the image as it is."""
NOTHING = "lower --prob-thresh, or see on the weights' card which images and sizes of objects they are for"


def _scale(text: str) -> float | str:
    if text == AUTO:
        return text
    with suppress(argparse.ArgumentTypeError):
        return factor(text)
    raise argparse.ArgumentTypeError(f"{text} is neither {AUTO} nor a positive number")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa segment",
        description="Finds objects in images.",
        epilog="Exit code 1 if something could not be read: it is listed on stderr, everything else is segmented. A file .pt or .pt2 "
        "and a function run the code that they hold.",
    )
    parser.add_argument(
        "model",
        metavar="WEIGHTS",
        help="published weights, a folder of weights, or a .ckpt of train.py; or another segmenter: a file .onnx, .pt (TorchScript) "
        "or .pt2, or MODULE:FUNCTION",
    )
    parser.add_argument(
        "inputs", nargs="+", metavar="IMAGES", help="images, and folders of images; a folder of OME-Zarr is one image"
    )
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="folder for the results; it is made where there is none"
    )
    parser.add_argument(
        "--only", type=_kinds, default=KINDS, metavar="KINDS", help=f"results to write (default {','.join(KINDS)})"
    )
    parser.add_argument(
        "--prob-thresh", type=share, help="score above which an object counts (default: as in the weights)"
    )
    parser.add_argument(
        "--tile",
        type=count(65_536),
        metavar="PIXELS",
        help=f"side of the tiles of large images (default {TILE}): smaller tiles take less memory and more time",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--scale",
        type=_scale,
        default=1.0,
        metavar="FACTOR",
        help="factor by which images are magnified for the network; auto: chosen from the objects of a first pass, where their size differs from that of training",
    )
    sizes.add_argument(
        "--diameter",
        type=factor,
        metavar="PIXELS",
        help="diameter of the objects in the images; the factor of --scale follows from it and the weights",
    )
    sizes.add_argument(
        "--mpp",
        type=number(*MPP_RANGE),
        metavar="MICROMETRES",
        help="size in micrometres of a pixel that the network sees, for images that state theirs",
    )
    parser.add_argument(
        "--stain",
        choices=(AUTO, *STAINS, NONE),
        default=AUTO,
        help="show the network the amount of this stain, in which nuclei of H&E (haematoxylin), or those that an antibody marks (dab), are as "
        "bright as in fluorescence, and leave out objects with little of it; auto, the default: haematoxylin for bright images in colour that "
        "are unlike those of training",
    )
    parser.add_argument(
        "--min-area", type=count(10**9), metavar="PIXELS", help="leave out objects of fewer pixels than this"
    )
    parser.add_argument(
        "--properties",
        type=_properties,
        default=[],
        metavar="NAMES",
        help=f"more columns of the table, as regionprops of scikit-image names them: {', '.join(PROPERTIES)}",
    )
    slices = (
        "slice to read from a stack, counted from 1; max: the largest value over all slices; all: every slice by itself"
    )
    add_plane(parser, slices, MAX, ALL)
    parser.add_argument(
        "--level",
        type=level,
        default=0,
        metavar="N",
        help="level of a slide or pyramid that the network sees; 0 is the finest. Results are in pixels of level 0",
    )
    parser.add_argument(
        "--roi",
        type=roi,
        metavar="X,Y,WIDTH,HEIGHT",
        help="segment this rectangle only, in pixels of level 0; the table and the polygons count from the corner of the image",
    )
    parser.add_argument(
        "--outputs",
        choices=OUTPUTS,
        help="what the maps of a segmenter that is not of gcsa are: a logit for each class (default), one probability, or a probability "
        "and distances as in StarDist",
    )
    parser.add_argument(
        "--symmetry",
        choices=("canonical",),
        help="for weights without a group: show the network each image in its canonical pose",
    )
    add_run(parser)
    add_hardware(parser)
    return parser.parse_intermixed_args(argv)


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if not set(kinds) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"{text} is not some of {','.join(KINDS)}")
    return kinds


def _properties(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in PROPERTIES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PROPERTIES)}")
    return names


def _check_folder(name: str, stems: Sequence[str], found: Sequence[Path], kinds: Sequence[str]) -> Path:
    """The folder to write to. Raises UserError where it cannot be one, and where a file of `found` would be overwritten."""
    folder = Path(name)
    if not folder.exists() and folder.suffix.lower() in {*SUFFIXES, ".csv", ".geojson"}:
        raise UserError(
            f"--output {name} is the folder of several files: name it without {folder.suffix}",
            "output.suffix_of_folder",
        )
    endings = [ending for kind in kinds for ending in ENDINGS[kind]]
    given = {str(path.resolve()).casefold() for path in found}  # as some file systems compare names
    for stem in stems:
        for ending in endings:
            if str((folder / (stem + ending)).resolve()).casefold() in given:
                raise UserError(
                    f"{folder / (stem + ending)} is one of the images, and would be overwritten: name another --output",
                    "output.is_input",
                )
    check_outside(folder, found)
    check_folder(folder, stems[0] + endings[0])
    return folder


def _predictor(args: argparse.Namespace) -> Any:
    """The segmenter with its options. Raises UserError for options that are not of it."""
    from gcsa.models.foreign import is_foreign
    from gcsa.tasks import load
    from gcsa.tasks.segmentation.stars import check_installed

    chosen = device(args.device)
    predictor: Any = load(args.model, task="segmentation", outputs=args.outputs, trust_code=True)
    mark(args, predictor)
    check_installed()
    if args.symmetry is not None:
        predictor.make_exact(args.symmetry)
    if predictor.network.output == "classes":
        if args.prob_thresh is not None:
            raise UserError(
                f"--prob-thresh is of objects, and {args.model} finds classes of pixels: leave it out",
                "prob_thresh.classes",
            )
        if args.min_area is not None or args.properties:
            raise UserError(
                f"--min-area and --properties are of objects, and {args.model} finds classes of pixels: leave them out",
                "properties.classes",
            )
        if set(args.only) == {"geojson"}:
            raise UserError(
                f"--only geojson is of objects, and {args.model} finds classes of pixels: name other kinds",
                "only.classes",
            )
    margin = predictor.network.margin
    if args.tile is not None and margin is not None and args.tile < margin:
        raise UserError(
            f"--tile {args.tile} is less than the {margin} pixels that are read around a tile: use {margin} or more",
            "tile.too_small",
        )
    if args.diameter is not None:
        args.scale = predictor.scale_for(args.diameter)
        check_float("--scale", args.scale, *SCALES)
    if args.scale == AUTO and (predictor.diameter is None or predictor.network.output == "classes"):
        raise UserError(
            "--scale auto needs weights of instances that say their diameter: give a factor or --diameter",
            "scale.no_diameter",
        )
    if args.prob_thresh is not None:
        predictor.prob_thresh = args.prob_thresh
    predictor = predictor.to(chosen)
    return predictor if is_foreign(args.model) else predictor.fold()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running(KEPT) as stack:
        images = find_images(args.inputs, suffixes=(*SUFFIXES, *SLIDES, ZARR))
        check_run(args, images)
        if args.properties and "csv" not in args.only:
            raise UserError("--properties are columns of the table: add csv to --only", "properties.needs_csv")
        if args.scale != AUTO:
            check_float("--scale", args.scale, *SCALES)
        going = how(stack, args, _work, kept=KEPT)
        from gcsa.batch import Run
        from gcsa.tasks.segmentation.folder import list_jobs, tell, without_own, write_images

        jobs = without_own(list_jobs(images, args.channel, args.z, args.time), args.inputs)
        check_stems(((job.stem, job.path) for job in jobs), "segment")
        folder = _check_folder(args.output, [job.stem for job in jobs], images, args.only)
        existed = folder.exists()
        work = _work(args)
        folder.mkdir(parents=True, exist_ok=True)
        with Run(jobs, work, folder / LEDGER, going, in_folder=True) as run:
            outcome = run.do(tell)
            found = [(job, result.values) for job, result in run.results() if result.finished]
        if found and "csv" in args.only:
            write_images(folder, found)
        warn_out_of_distribution((str(job), values["ood_score"]) for job, values in found)
        if empty := sum(values["objects"] == 0 for _, values in found):
            print(f"nothing was found in {empty} of {len(jobs)} images: {NOTHING}", file=sys.stderr)
        if not existed and not any(folder.iterdir()):
            folder.rmdir()
        return outcome.tell("segmented")


def _work(args: argparse.Namespace) -> Any:
    """What is done with an image, in this process or another."""
    from gcsa.images.slides import Roi
    from gcsa.tasks.segmentation.folder import SegmentWork, Wanted

    compute_on(args.threads)
    predictor = _predictor(args)
    names = ("scale", "mpp", "stain", "tile", "level", "min_area", "properties")
    options: dict[str, Any] = {name: getattr(args, name) for name in names}
    options["stain"] = None if args.stain == NONE else args.stain
    wanted = Wanted(kinds=args.only, roi=None if args.roi is None else Roi(*args.roi), **options)
    return SegmentWork(predictor, Path(args.output), wanted, settings(args))
