"""The part of gcsa embed for slides: `--patches` writes NAME.h5 and NAME_patches.png for each slide into a folder, and with
`--heatmap CLASS` NAME_heatmap_CLASS.png.

A run that was killed goes on where it stopped: finished slides are not read again, and NAME.h5.part holds the rows of the one that
was read. `NAME_patches.png` shows which parts of the slide are embedded.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import nn

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import UserError
from gcsa.cli.arguments import channel, check_outside, check_stems, count, level, number, roi, slice_of
from gcsa.images.folders import SUFFIXES
from gcsa.images.pixels import naming
from gcsa.images.planes import MAX, Plane
from gcsa.images.prepare import Prepare
from gcsa.images.slides import Slide, open_slide
from gcsa.images.tiff import MPP_RANGE
from gcsa.integrations import load_classifier
from gcsa.integrations.networks import is_foreign
from gcsa.tasks.classification.heatmap import draw_heatmap, probability_of, save_heatmap
from gcsa.tasks.classification.patches import (
    Patches,
    RowStore,
    attributes,
    choose_patches,
    embed_patches,
    save_picture,
    write_features,
)
from gcsa.weights.fingerprint import differ, fingerprint

TISSUE = 0.25
"""Least share of tissue in a patch, by default."""
Heat = Callable[[Any], Array]
"""Features (N, D) to the probabilities (N,) of a class."""
OPTIONS = ("mpp", "slide_mpp", "tissue", "level", "roi", "channel", "z", "time", "heatmap")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds --patches and its options."""
    scale = number(*MPP_RANGE)
    parser.add_argument(
        "--patches",
        action="store_true",
        help="embed patches of slides, in a file for each; the same command goes on after a stop",
    )
    parser.add_argument(
        "--mpp", type=scale, metavar="MICROMETRES", help="a pixel of patches (default: as in the weights)"
    )
    parser.add_argument(
        "--slide-mpp", type=scale, metavar="MICROMETRES", help="a pixel of slides, where they do not say it"
    )
    parser.add_argument(
        "--tissue", type=number(0, 1), metavar="SHARE", help=f"of a patch at least (default {TISSUE}); 0: all patches"
    )
    parser.add_argument(
        "--level", type=level, metavar="N", help="take the pixels of this level, 0 the finest, instead of --mpp"
    )
    parser.add_argument(
        "--roi", type=roi, metavar="X,Y,WIDTH,HEIGHT", help="embed the patches of this rectangle, in pixels of level 0"
    )
    parser.add_argument("--channel", type=channel, metavar="N|NAME", help="of slides with several, counted from 1")
    parser.add_argument(
        "--z", type=slice_of(MAX), metavar="max|N", help="of stacks: the largest values, or a slice, from 1"
    )
    parser.add_argument("--time", type=count(10**6), metavar="N", help="of series: the frame, counted from 1")
    parser.add_argument(
        "--heatmap",
        metavar="CLASS",
        help="of a classifier of gcsa: also draw the probability of this class over each slide",
    )


def check_options(args: argparse.Namespace) -> None:
    """Raises UserError for options of --patches without it."""
    given = [name for name in OPTIONS if getattr(args, name) is not None]
    if given and not args.patches:
        value = getattr(args, given[0])
        value = f"{value:g}" if isinstance(value, float) else value
        raise UserError(f"--{given[0].replace('_', '-')} {value} is of --patches: add --patches")
    if args.level is not None and args.mpp is not None:
        raise UserError(f"--level {args.level} has micrometres a pixel of its own: leave out --mpp {args.mpp:g}")


def check_output(name: str, slides: Sequence[Path]) -> None:
    """Makes the folder `name`. Raises UserError where it cannot be one, and for slides whose files would be the same."""
    folder = Path(name)
    if folder.suffix.lower() in (".h5", ".parquet", *SUFFIXES) and not folder.is_dir():
        raise UserError(f"--output {name} is a folder with --patches: name it without {folder.suffix}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {name} is a file: with --patches, name a folder")
    check_stems(((path.stem, path) for path in slides), "embed")
    check_outside(folder, slides)
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / f"{slides[0].stem}.h5")


def heat_of(args: argparse.Namespace) -> Heat | None:
    """What --heatmap asks for; None without it. Raises UserError for a network that gives features only, and as `probability_of`."""
    if args.heatmap is None:
        return None
    if is_foreign(args.model) or args.model.startswith("timm:"):
        raise UserError(
            f"--heatmap {args.heatmap} is the probability of a class, and {args.model} gives features only: name a classifier of gcsa"
        )
    return probability_of(load_classifier(args.model, args.adapter).fold(), args.heatmap)


def heatmap_file(folder: Path, slide: Path, name: str) -> Path:
    """The picture of a class; what no file may be called becomes an underscore."""
    safe = re.sub(r"[^\w.-]", "_", name)
    return folder / f"{slide.stem}_heatmap_{safe}.png"


def embed(
    network: nn.Module,
    prepare: Prepare,
    slides: Sequence[Path],
    about: Mapping[str, Any],
    args: argparse.Namespace,
    heat: Heat | None = None,
) -> list[str]:
    """Embeds the patches of all slides, and returns a sentence for each that failed. The bar is shown on a terminal only.

    heat: of --heatmap; then slides that were embedded before get the picture that they lack.

    Raises UserError without a scale, and where a file of other settings would be overwritten.
    """
    mpp = prepare.mpp if args.mpp is None else args.mpp
    if mpp is None and args.level is None:
        raise UserError(f"{args.model} does not say at how many micrometres a pixel it sees tissue: give --mpp")
    tissue = TISSUE if args.tissue is None else args.tissue
    settings = {
        key: value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
        for key, value in about.items()
    } | {"tissue": tissue}
    settings |= {"mpp": mpp} if args.level is None else {"level": args.level}
    settings |= {} if args.roi is None else {"roi": str(args.roi)}
    others = {name: getattr(args, name) for name in ("slide_mpp", "channel", "z", "time")}
    settings |= {name: value for name, value in others.items() if value is not None}
    settings |= {"fingerprint": fingerprint(network)} if any(True for _ in network.parameters()) else {}
    folder = Path(args.output)
    done = {path for path in slides if _is_finished(folder / f"{path.stem}.h5", _of(path, settings))}
    return list(_embed_others(network, prepare, slides, done, settings, folder, args, heat))


def _of(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the file of one slide: another slide of that name has other bytes."""
    return {**settings, "slide": path.name, "slide_bytes": _bytes(path)}


def _bytes(path: Path) -> int:
    """Of a file, or of all files in a folder of OME-Zarr."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(Path(parent, name).stat().st_size for parent, _, names in os.walk(path) for name in names)


def _is_finished(file: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a slide was embedded already. Raises UserError for a file of other settings."""
    if not file.exists():
        return False
    try:
        with h5py.File(file) as opened:
            there = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in opened.attrs.items()}
    except OSError:
        there = {}
    marks = there.pop("fingerprint", ""), settings.get("fingerprint", "")
    if there != {key: value for key, value in settings.items() if key != "fingerprint"} or differ(*marks):
        raise UserError(f"{file} is there, of another slide or other settings: remove it, or name another --output")
    return True


def _plane(args: argparse.Namespace) -> Plane | None:
    """Which picture of stacks is embedded; None where no option says it."""
    plane = Plane(args.channel, args.z, args.time)
    return None if plane == Plane() else plane


def _embed_others(
    network: nn.Module,
    prepare: Prepare,
    slides: Sequence[Path],
    done: set[Path],
    settings: Mapping[str, Any],
    folder: Path,
    args: argparse.Namespace,
    heat: Heat | None,
) -> Iterator[str]:
    console, plane = Console(stderr=True), _plane(args)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        total = bar.add_task("slides", total=len(slides))
        for path in slides:
            file = folder / f"{path.stem}.h5"
            drawn = None if heat is None else heatmap_file(folder, path, args.heatmap)
            if path in done and (drawn is None or drawn.exists()):
                print(f"{file}: there already", flush=True)
                bar.advance(total)
                continue
            try:
                with open_slide(path, 3, plane=plane) as slide:
                    with naming(path):
                        scales = settings.get("mpp"), args.slide_mpp
                        patches = choose_patches(
                            slide, prepare.size, *scales, settings["tissue"], args.level or 0, args.roi
                        )
                    shape, said = slide.shape, f"{file}: there already"
                    if path not in done:
                        said = _embed_slide(
                            network, prepare, slide, patches, _of(path, settings), file, args.batch_size, bar
                        )
                if heat is not None and drawn is not None:
                    _draw(file, drawn, patches, shape, heat, args.heatmap)
                print(said, flush=True)
            except ValueError as error:
                yield str(error)
            except MemoryError:
                yield f"{path}: not enough memory"
            bar.advance(total)


def _embed_slide(
    network: nn.Module,
    prepare: Prepare,
    slide: Slide,
    patches: Patches,
    about: Mapping[str, Any],
    file: Path,
    batch_size: int,
    bar: Progress,
) -> str:
    """Writes the files of one slide, and returns the line that says so."""
    store = RowStore(file.with_name(f"{file.name}.part"), about)
    before, count = store.count, len(patches.corners)
    task = bar.add_task(str(about["slide"]), total=count, completed=before)
    embed_patches(network, prepare, slide, patches, store, batch_size, partial(bar.advance, task))
    of_coords = attributes(slide, patches, prepare.size, file.stem, str(file.parent))
    with replacing(file.with_name(f"{file.stem}_patches.png")) as part:
        save_picture(part, patches)
    with replacing(file) as part:
        write_features(part, store.rows(), patches.corners, of_coords, about)
    store.file.unlink()
    bar.remove_task(task)
    again = f", {before} of them from before" if before else ""
    return f"{file}: {count} patches, {store.columns} features each{again}"


def _draw(file: Path, drawn: Path, patches: Patches, shape: tuple[int, int], heat: Heat, name: str) -> None:
    """Writes the heat map of the features in `file`."""
    with h5py.File(file) as opened:
        values = heat(opened["features"])
    with replacing(drawn) as part:
        save_heatmap(part, draw_heatmap(patches, shape, values, name))
