"""Find objects in images: `gcsa segment gcsa_unet_tiny.nuclei slide.tif images/ --output found/`.

Weights are a .ckpt of train.py, a folder of weights or the name of published ones. Of each image the output folder gets a label
image, an overlay, a table and GeoJSON (see `gcsa.tasks.segmentation.writers`); a line on stdout names it and what was found.
Exit codes: 0, all images; 1, something could not be read or written, listed on stderr; 2, wrong arguments, before anything is
read; 130, interrupted.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import UserError, one_line, visible
from gcsa._utils.validation import check_float
from gcsa.cli.arguments import (
    GROUPS,
    add_hardware,
    channel,
    check_outside,
    check_stems,
    count,
    device,
    find_images,
    level,
    number,
    roi,
    share,
    slice_of,
)
from gcsa.cli.errors import Parser, tell_failed
from gcsa.cli.output import tell_doubts
from gcsa.cli.running import running
from gcsa.images.folders import SLIDES, SUFFIXES, ZARR
from gcsa.images.pixels import naming
from gcsa.images.planes import MAX, Plane
from gcsa.images.reader import stack_header
from gcsa.images.slides import Slide, open_slide
from gcsa.images.stain import STAINS
from gcsa.images.tiff import MPP_RANGE
from gcsa.integrations.networks import is_foreign, open_segmenter
from gcsa.tasks import load
from gcsa.tasks.segmentation.choices import ENDINGS, KINDS, OUTPUTS, PROPERTIES, TILE
from gcsa.tasks.segmentation.predict import Segmentation, SegmentationPredictor
from gcsa.tasks.segmentation.stars import check_installed
from gcsa.tasks.segmentation.writers import check_properties, write

UNREADABLE = (ValueError, OSError)
KEPT = 2**25
"""Bytes of the largest freed block that is kept: the maps of tiles are larger, and would leave gaps."""
OUT_OF_MEMORY = "DefaultCPUAllocator"
"""Is in the RuntimeError of torch."""
AUTO = "auto"
"""Of --scale: what `SegmentationPredictor.own_scale` finds."""
ALL = "all"
"""Of --z: every slice by itself."""
NOTHING = "lower --prob-thresh, or see on the weights' card which images and sizes of objects they are for"


class Job(NamedTuple):
    """An image to segment: its file, what the names of its results begin with, and which picture of a stack it is."""

    path: Path
    stem: str
    plane: Plane

    def __str__(self) -> str:
        return str(self.path) if self.stem == self.path.stem else f"{self.path}, slice {self.plane.z}"


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
        help=".ckpt of train.py, folder of weights, or the name of published ones; or the segmenter of somebody else, a file .onnx, "
        ".pt (TorchScript) or .pt2, or MODULE:FUNCTION",
    )
    parser.add_argument(
        "inputs", nargs="+", metavar="IMAGES", help="images, and folders of them; a folder of OME-Zarr is an image"
    )
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="where files are written; made if it is not there"
    )
    parser.add_argument(
        "--only", type=_kinds, default=KINDS, metavar="KINDS", help=f"what is written (default {','.join(KINDS)})"
    )
    parser.add_argument(
        "--prob-thresh", type=share, help="score above which an object counts (default: as in the weights)"
    )
    parser.add_argument(
        "--nms-thresh",
        type=share,
        help="largest overlap of two objects, as a share of the smaller (default: as in the weights)",
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
        help="magnify images by this factor for the network; auto: by what it finds, in a second pass where sizes differ",
    )
    sizes.add_argument(
        "--diameter", type=factor, metavar="PIXELS", help="of the objects: finds the factor from the weights"
    )
    sizes.add_argument(
        "--mpp",
        type=number(*MPP_RANGE),
        metavar="MICROMETRES",
        help="a pixel that the network sees, of images that say theirs",
    )
    parser.add_argument(
        "--stain",
        choices=STAINS,
        help="the network sees the amount of this stain, in which nuclei of H&E are as bright as in fluorescence; objects with little "
        "of it are left out",
    )
    parser.add_argument("--min-area", type=count(10**9), metavar="PIXELS", help="leave out objects of fewer pixels")
    parser.add_argument(
        "--properties",
        type=_properties,
        default=[],
        metavar="NAMES",
        help=f"more columns of the table, as regionprops of scikit-image names them: {', '.join(PROPERTIES)}",
    )
    parser.add_argument(
        "--channel",
        type=channel,
        metavar="N|NAME",
        help="of images with several, counted from 1, or its name in the file",
    )
    parser.add_argument(
        "--z",
        type=slice_of(MAX, ALL),
        metavar="max|all|N",
        help="of stacks: the largest values over all slices, every slice by itself, or one, counted from 1",
    )
    parser.add_argument("--time", type=count(10**6), metavar="N", help="of series: the frame, counted from 1")
    parser.add_argument(
        "--level",
        type=level,
        default=0,
        metavar="N",
        help="of slides and pyramids: the level that the network sees, 0 the finest; results are of level 0",
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
        help="of the segmenter of somebody else: a logit for each class (default), one probability, or probability and distances as "
        "of StarDist",
    )
    parser.add_argument(
        "--symmetry", choices=("canonical",), help="for weights without a group: read images in their canonical pose"
    )
    parser.add_argument("--group", choices=GROUPS, help="of --symmetry (default d4)")
    add_hardware(parser)
    return parser.parse_intermixed_args(argv)


def factor(text: str) -> float:
    """An argument as a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


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


def _jobs(images: Sequence[Path], args: argparse.Namespace) -> list[Job]:
    """What is to be segmented: the images, or with `--z all` every slice of each."""
    plane = Plane(args.channel, MAX if args.z == ALL else args.z, args.time)
    jobs = []
    for path in images:
        slices = 1
        if args.z == ALL:
            with suppress(*UNREADABLE):  # which is told when the image is read
                slices, _ = stack_header(path, plane)
        if slices == 1:
            jobs.append(Job(path, path.stem, plane))
            continue
        digits = len(str(slices))
        jobs += [Job(path, f"{path.stem}_z{z:0{digits}}", replace(plane, z=z)) for z in range(1, slices + 1)]
    return jobs


def _without_own(jobs: Sequence[Job], named: Sequence[str]) -> list[Job]:
    """The jobs without the labels and overlays of others, which an earlier run wrote beside them, unless they are `named`."""
    written = {job.path.with_name(job.stem + ending) for job in jobs for kind in ENDINGS for ending in ENDINGS[kind]}
    written -= {Path(name) for name in named}
    kept = [job for job in jobs if job.path not in written]
    if len(kept) < len(jobs):
        ignored = f"{len(jobs) - len(kept)} of {len(jobs)} images are left out"
        print(
            f"{ignored}: they are called like labels or overlays of others; name a file to segment it", file=sys.stderr
        )
    return kept


def _check_folder(name: str, jobs: Sequence[Job], found: Sequence[Path], kinds: Sequence[str]) -> Path:
    """The folder to write to, made. Raises UserError where it cannot be one, and where a file of `found` would be overwritten."""
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {name} is a file: name a folder")
    if not folder.exists() and folder.suffix.lower() in {*SUFFIXES, ".csv", ".geojson"}:
        raise UserError(f"--output {name} is the folder of several files: name it without {folder.suffix}")
    endings = [ending for kind in kinds for ending in ENDINGS[kind]]
    given = {str(path.resolve()).casefold() for path in found}  # as some file systems compare names
    for job in jobs:
        for ending in endings:
            if str((folder / (job.stem + ending)).resolve()).casefold() in given:
                raise UserError(
                    f"{folder / (job.stem + ending)} is one of the images, and would be overwritten: name another --output"
                )
    check_outside(folder, found)
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / (jobs[0].stem + endings[0]))
    return folder


def _predictor(args: argparse.Namespace) -> SegmentationPredictor:
    chosen = device(args.device)
    predictor: Any
    if is_foreign(args.model):
        predictor = SegmentationPredictor(open_segmenter(args.model, args.outputs))
    elif args.outputs is not None:
        raise UserError(f"--outputs is for segmenters of others, and {args.model} says its own: leave it out")
    else:
        predictor = load(args.model, task="segmentation")
    check_installed()
    if args.properties and "csv" not in args.only:
        raise UserError("--properties are columns of the table: add csv to --only")
    if args.symmetry is not None:
        predictor.make_exact(args.symmetry, args.group)
    elif args.group is not None:
        raise UserError(f"--group {args.group} is of --symmetry: add --symmetry canonical")
    if predictor.network.output == "classes":
        if args.prob_thresh is not None or args.nms_thresh is not None:
            raise UserError(
                f"--prob-thresh and --nms-thresh are of objects, and {args.model} finds classes of pixels: leave them out"
            )
        if args.min_area is not None or args.properties:
            raise UserError(
                f"--min-area and --properties are of objects, and {args.model} finds classes of pixels: leave them out"
            )
        if set(args.only) == {"geojson"}:
            raise UserError(f"--only geojson is of objects, and {args.model} finds classes of pixels: name other kinds")
    margin = predictor.network.margin
    if args.tile is not None and margin is not None and args.tile < margin:
        raise UserError(
            f"--tile {args.tile} is less than the {margin} pixels that are read around a tile: use {margin} or more"
        )
    if args.diameter is not None:
        args.scale = predictor.scale_for(args.diameter)
    if args.scale == AUTO:
        if predictor.diameter is None or predictor.network.output == "classes":
            raise UserError(
                "--scale auto needs weights of instances that say their diameter: give a factor or --diameter"
            )
    else:
        check_float("--scale", args.scale, 0.01, 100)
    if args.prob_thresh is not None:
        predictor.prob_thresh = args.prob_thresh
    if args.nms_thresh is not None:
        predictor.nms_thresh = args.nms_thresh
    predictor = predictor.to(chosen)
    return predictor if is_foreign(args.model) else predictor.fold()


def _segment(
    predictor: SegmentationPredictor, jobs: Sequence[Job], folder: Path, args: argparse.Namespace
) -> Iterator[str]:
    """Segments all images, and yields a sentence for each that failed. A progress bar is shown on terminals only.

    Says on stderr which images are unlike those of training, and where nothing was found.
    """
    console, empty = Console(stderr=True), 0
    doubts: list[tuple[str, float | None]] = []
    # Lines for that terminal stand above the bar; rich would send those for a file or a pipe there as well.
    with Progress(console=console, disable=not console.is_terminal, redirect_stdout=sys.stdout.isatty()) as progress:
        task = progress.add_task("images", total=len(jobs))
        for number, job in enumerate(jobs, 1):
            try:
                with open_slide(job.path, predictor.network.in_chans, plane=job.plane) as slide:
                    pixel_size = slide.pixel_size
                    check_properties(args.properties, pixel_size)
                    with naming(job.path):
                        seen, image, origin = slide.part(args.level, args.roi)
                    advance = partial(progress.advance, task)
                    scale = args.scale if args.mpp is None else _scale_to(args.mpp, slide, args.level, job.path)
                    options: dict[str, Any] = dict(scale=scale, stain=args.stain, tile=args.tile, shape=image.shape)
                    result = replace(predictor.predict(seen, **options, progress=advance), origin=origin)
                    if args.min_area is not None:
                        result = result.without_small(args.min_area)
                    measured = dict(properties=args.properties, pixel_size=pixel_size)
                    write(result, image, predictor.limits(seen), folder / job.stem, args.only, **measured)
            except UNREADABLE as error:
                message = one_line(error, limit=None)
                yield message if str(job.path) in message else f"{job}: {message}"
            except (MemoryError, RuntimeError) as error:
                if not isinstance(error, MemoryError | torch.OutOfMemoryError) and OUT_OF_MEMORY not in str(error):
                    raise
                smaller = (
                    "cut the image" if predictor.network.margin is None else "choose a smaller --tile, or cut the image"
                )
                yield f"{job}: not enough memory: {smaller}"
            else:
                _say(f"{job}: {_summary(result)}")
                doubts.append((str(job), result.doubt))
                empty += result.objects is not None and not len(result.objects)
            progress.update(task, completed=number)
    tell_doubts(doubts)
    if empty:
        print(f"nothing was found in {empty} of {len(jobs)} images: {NOTHING}", file=sys.stderr)


def _scale_to(mpp: float, slide: Slide, level: int, path: Path) -> float:
    """The factor that brings a level of a slide to `mpp` micrometres a pixel. Raises UserError for one that does not say its own."""
    if slide.mpp is None:
        raise UserError(f"{path} does not say how many micrometres a pixel has: give --scale instead of --mpp")
    return slide.mpp * slide.downsample(level) / mpp


def _summary(result: Segmentation) -> str:
    if result.objects is not None:
        return f"{len(result.objects)} objects"
    return f"classes {', '.join(map(str, np.unique(result.labels)))}"


def _say(line: str) -> None:
    """Prints a line, until nobody reads on: the files are written all the same."""
    try:
        print(visible(line), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running(args.threads, KEPT):
        found = find_images(args.inputs, suffixes=(*SUFFIXES, *SLIDES, ZARR))
        jobs = _without_own(_jobs(found, args), args.inputs)
        check_stems(((job.stem, job.path) for job in jobs), "segment")
        predictor = _predictor(args)
        existed = Path(args.output).exists()
        folder = _check_folder(args.output, jobs, found, args.only)
        logging.getLogger("tifffile").setLevel(
            logging.CRITICAL
        )  # what it says of a damaged file is one of the sentences
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # for names that cannot be printed
        failed = list(_segment(predictor, jobs, folder, args))
        tell_failed(failed, len(jobs), "segmented")
        if not existed and not any(folder.iterdir()):
            folder.rmdir()
    return 1 if failed else 0
