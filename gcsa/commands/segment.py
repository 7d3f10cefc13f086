"""Find objects in images: `segment.py gcsa_unet_tiny.nuclei slide.tif images/ --output found/`.

Weights are a .ckpt of train.py, a folder of weights or the name of published ones. Of each image the output folder gets a label
image, an overlay, a table and GeoJSON (see `gcsa.dense.written`); a line on stdout names it and what was found.
Exit codes: 0, all images; 1, something could not be read or written, listed on stderr; 2, wrong arguments, before anything is
read; 130, interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

from gcsa.commands.arguments import count, device, share
from gcsa.commands.errors import Parser, user_errors
from gcsa.commands.memory import keep_freed_memory
from gcsa.data.images import SUFFIXES
from gcsa.dense import Segmenter, load_segmenter
from gcsa.dense.source import open_source
from gcsa.dense.stars import check_installed
from gcsa.dense.tiles import segment
from gcsa.dense.written import KINDS, write
from gcsa.export import fold
from gcsa.program import program

UNREADABLE = (ValueError, OSError, MemoryError)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog=program("segment"),
        description="Finds objects in images.",
        epilog="Exit code 1 if something could not be read: it is listed on stderr, everything else is segmented.",
    )
    parser.add_argument(
        "model", metavar="WEIGHTS", help=".ckpt of train.py, folder of weights, or the name of published ones"
    )
    parser.add_argument("inputs", nargs="+", metavar="IMAGES", help="images, and folders of them")
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="where files are written; made if it is not there"
    )
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="what is written (default: all)")
    parser.add_argument("--threshold", type=share, help="score from which an object counts (default: of the weights)")
    parser.add_argument(
        "--overlap", type=share, help="of two objects, as a share of the smaller (default: of the weights)"
    )
    parser.add_argument(
        "--tile", type=count(65_536), metavar="PIXELS", help="side of the tiles of large images (default 768)"
    )
    parser.add_argument("--threads", type=count(1000), help="of the CPU (default: one a core)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default %(default)s")
    return parser.parse_intermixed_args(argv)


def find_images(inputs: Sequence[str]) -> list[Path]:
    """The images that are named, and those in folders, by name. Raises FileNotFoundError and ValueError, naming the input, for one
    that is not there, for a folder without images, and for two images of one name, whose files would be the same."""
    found: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if _is_image(file))
            if not inside:
                raise ValueError(f"{path} is a folder without images ({', '.join(SUFFIXES)})")
            found += inside
        elif path.is_file():
            found.append(path)
        elif path.exists():
            raise ValueError(f"{name} is a device or a pipe: give images, or folders of them")
        else:
            raise FileNotFoundError(f"there is no {name}: give images, or folders of them")
    found = list(dict.fromkeys(found))
    by_stem: dict[str, Path] = {}
    for path in found:
        other = by_stem.setdefault(path.stem.casefold(), path)
        if other != path:
            raise ValueError(
                f"{other} and {path} have one name, and so would their files: segment them into folders of their own"
            )
    return found


def _is_image(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _check_folder(name: str) -> Path:
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output {name} is a file: name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _segmenter(args: argparse.Namespace) -> Segmenter:
    chosen = device(args.device)
    segmenter = load_segmenter(args.model)
    check_installed()
    if segmenter.task == "masks" and (args.threshold is not None or args.overlap is not None):
        raise ValueError(
            f"--threshold and --overlap are of objects, and {args.model} tells classes of pixels: leave them out"
        )
    threshold = segmenter.threshold if args.threshold is None else args.threshold
    segmenter.set_thresholds(threshold, segmenter.overlap if args.overlap is None else args.overlap)
    return fold(segmenter.to(chosen))


def _segmented(segmenter: Segmenter, images: Sequence[Path], folder: Path, args: argparse.Namespace) -> Iterator[str]:
    """Segments all images, and yields a sentence for each that failed. The bar is shown on a terminal alone."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal or sys.stdout.isatty()) as progress:
        task = progress.add_task("images", total=len(images))
        for number, path in enumerate(images, 1):
            try:
                with open_source(path, segmenter.in_chans) as source:
                    result = segment(segmenter, source, args.tile, lambda part: progress.advance(task, part))
                    scale = source.percentiles(segmenter.low, segmenter.high)
                    write(result, source, scale, folder / path.stem, args.only)
            except UNREADABLE as error:
                yield f"{path}: not enough memory" if isinstance(error, MemoryError) else " ".join(str(error).split())
            else:
                what = (
                    f"{len(result.objects)} objects" if result.objects is not None else f"{result.labels.max()} classes"
                )
                print(f"{path}: {what}", flush=True)
            progress.update(task, completed=number)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    keep_freed_memory()
    with user_errors():
        if args.threads is not None:
            torch.set_num_threads(args.threads)
        images = find_images(args.inputs)
        segmenter = _segmenter(args)
        folder = _check_folder(args.output)
        failed = list(_segmented(segmenter, images, folder, args))
        if failed:
            print(f"{len(failed)} of {len(images)} could not be segmented:", *failed, sep="\n  ", file=sys.stderr)
    return 1 if failed else 0
