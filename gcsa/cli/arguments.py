"""Kinds of arguments that several commands take. torch is imported behind them, when a command starts to work."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import UserError
from gcsa.images.folders import SUFFIXES, ZARR, list_files

if TYPE_CHECKING:
    import torch
    from torch import nn

    from gcsa.groups import Group
    from gcsa.symmetry import SymmetryOptions

GROUPS = ("c2", "c4", "d1", "d2", "d4")
"""Those that `gcsa.symmetry` takes."""


def count(most: int) -> Callable[[str], int]:
    """What turns an argument into a whole number from 1 to `most`."""

    def read(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text[:9]) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 to {most}")
        return int(text)

    return read


def real(fits: Callable[[float], bool], words: str) -> Callable[[str], float]:
    """What turns an argument into a number that fits, which `words` describe. NaN must not fit."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not fits(value):
            raise argparse.ArgumentTypeError(f"{text} is not {words}")
        return value

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    """What turns an argument into a number from `low` to `high`."""
    return real(lambda value: low <= value <= high, f"a number from {low:g} to {high:g}")


share = real(lambda value: 0 < value < 1, "a number between 0 and 1")
factor = real(lambda value: 0 < value < math.inf, "a positive number")


def roi(text: str) -> tuple[int, ...]:
    """An argument X,Y,WIDTH,HEIGHT as the numbers of a `gcsa.images.slides.Roi`."""
    parts = text.split(",")
    if len(parts) != 4 or not all(part.isdecimal() and len(part) < 10 for part in parts) or 0 in map(int, parts[2:]):
        raise argparse.ArgumentTypeError(f"{text} is not X,Y,WIDTH,HEIGHT in whole pixels")
    return tuple(map(int, parts))


def level(text: str) -> int:
    """An argument as the number of a level."""
    if not text.isdecimal() or len(text) > 3:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0, the finest level")
    return int(text)


def channel(text: str) -> int | str:
    """An argument as a number or a name."""
    return int(text) if text.isdecimal() else text


def slice_of(*names: str) -> Callable[[str], int | str]:
    """What turns an argument into the number of a slice, or one of `names`."""

    def read(text: str) -> int | str:
        if text in names:
            return text
        with suppress(argparse.ArgumentTypeError):
            return count(10**6)(text)
        raise argparse.ArgumentTypeError(f"{text} is neither {', '.join(names)} nor a whole number from 1")

    return read


QUEUES = ("slurm", "pbs", "lsf", "sge")
"""Of dask-jobqueue."""
NETWORKS = "weights of gcsa, timm:NAME, a file .onnx, .pt (TorchScript) or .pt2, or MODULE:FUNCTION"
"""What `gcsa.load` opens."""


def add_images(
    parser: argparse.ArgumentParser,
    done: str,
    model: str = "published weights, a folder of weights, or a .ckpt of train.py",
) -> None:
    """Adds WEIGHTS, IMAGES, --batch-size and --adapter of a command for classifiers; images are `done` together."""
    parser.add_argument("model", metavar="WEIGHTS", help=model)
    add_inputs(parser)
    add_batch_size(parser, done)
    parser.add_argument(
        "--adapter", metavar="ADAPTER", help="adapter that is added to the weights: a folder or a published name"
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Adds IMAGES."""
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="IMAGES",
        help="images, and folders of images, which are searched with all folders inside",
    )


def add_batch_size(parser: argparse.ArgumentParser, done: str) -> None:
    """Adds --batch-size of images, which are `done` together."""
    parser.add_argument(
        "--batch-size",
        type=count(10_000),
        default=32,
        metavar="IMAGES",
        help=f"images that are {done} together (default 32)",
    )


def add_symmetry(parser: argparse.ArgumentParser) -> None:
    """Adds --symmetry, --group and --rotations."""
    parser.add_argument("--symmetry", choices=("averaged", "canonical"), help="make the network exact by gcsa.symmetry")
    parser.add_argument("--group", choices=GROUPS, help="group of --symmetry (default d4)")
    parser.add_argument(
        "--rotations",
        type=count(360),
        metavar="N",
        help="answer by the mean over N rotations of an exact network, such as 8: steadier at angles between, in N / 4 passes",
    )


def add_plane(parser: argparse.ArgumentParser, slices: str, *names: str) -> None:
    """Adds --channel, --z and --time. `names` are the words that --z takes, which `slices` explains."""
    parser.add_argument(
        "--channel",
        type=channel,
        metavar="N|NAME",
        help="channel to read from images with several: its number, counted from 1, or its name",
    )
    parser.add_argument("--z", type=slice_of(*names), metavar="|".join([*names, "N"]), help=slices)
    parser.add_argument(
        "--time", type=count(10**6), metavar="N", help="frame to read from a time series, counted from 1"
    )


def check_network(args: argparse.Namespace) -> None:
    """Raises UserError for a --group alone, and a --device that cannot be used here; before weights are read."""
    if getattr(args, "group", None) is not None and args.symmetry is None:
        raise UserError(
            f"--group {args.group} is the group of --symmetry: add --symmetry canonical, for example",
            "group.needs_symmetry",
        )
    if getattr(args, "device", None) is not None:
        device(args.device)


def symmetry_options(args: argparse.Namespace) -> SymmetryOptions:
    """What --symmetry and --group say."""
    from gcsa.symmetry import SymmetryOptions

    return SymmetryOptions(symmetry=args.symmetry, symmetry_group=args.group)


def symmetrized(network: nn.Module, args: argparse.Namespace, group: Group | None = None) -> nn.Module:
    """`network`, which is exact under `group`, as --symmetry, --group and --rotations say. Raises UserError where they do not fit."""
    from gcsa.groups import group as make_group
    from gcsa.models.pose import symmetrize
    from gcsa.symmetry import RotationAveraged

    group, options = group or make_group("c1"), symmetry_options(args)
    if options.symmetry is not None:
        group = options.group
        network = symmetrize(network, options.symmetry, str(group))
    return network if args.rotations is None else RotationAveraged(network, group, args.rotations)


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """Adds --threads and --device."""
    add_threads(parser)
    parser.add_argument("--device", help="where to compute, such as cuda or cpu (default: cuda where there is one)")


def add_threads(parser: argparse.ArgumentParser, default: str = "one for each core") -> None:
    """Adds --threads."""
    parser.add_argument("--threads", type=count(1000), help=f"threads of the CPU that are used (default: {default})")


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds what commands have that do many files: --report, --overwrite, and those of `gcsa.cluster`."""
    parser.add_argument(
        "--report",
        metavar="FILE.csv",
        help="table to write, with a row for each file: status, seconds, confidence, and what went wrong",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="do anew what other weights or other options did; what the same did is left, and the same command goes on after a stop",
    )
    parser.add_argument(
        "--workers",
        type=count(10_000),
        metavar="N",
        help="processes of one thread each that do the files (default: this one)",
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="Dask scheduler whose workers do them, such as tcp://node:8786"
    )
    parser.add_argument("--cluster", choices=QUEUES, help="queueing system that starts the --workers, each as a job")
    parser.add_argument("--partition", metavar="NAME", help="queue or partition of the jobs")


def device(name: str | None) -> torch.device:
    """The device called `name`; None: a GPU where there is one. Raises UserError where it cannot be used here."""
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        on_device = torch.zeros(1, device=name)
        on_device.cpu()  # which the device "meta", where tensors hold nothing, cannot do
        return on_device.device
    except (RuntimeError, AssertionError) as error:
        there = "cpu, or cuda" if torch.cuda.is_available() else "cpu: PyTorch sees no GPU here"
        raise UserError(f"--device {name} cannot be used here: choose {there}", "device") from error


def check_exists(name: str, wanted: str) -> Path:
    """The path of an input. Raises FileNotFoundError where nothing is there, and UserError for a device; `wanted` says what to give."""
    path = Path(name)
    if not path.exists():
        raise FileNotFoundError(f"there is no {name}: give {wanted}")
    if not path.is_file() and not path.is_dir():
        raise UserError(f"{name} is a device or a pipe: give {wanted}", "images.device")
    return path


def find_images(inputs: Sequence[str], *, recursive: bool = False, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """The images that are named, and those of `suffixes` in folders, each once; with `recursive` also those in the folders inside.

    With `ZARR` among the suffixes a folder of OME-Zarr is an image. Raises as `check_exists`, and UserError for a folder without
    images.
    """
    found: list[Path] = []
    for name in inputs:
        path = check_exists(name, "images, or folders of them")
        if path.is_dir() and ZARR in suffixes and _is_zarr(path):
            found.append(path)
        elif path.is_dir():
            inside = list_files(path, suffixes, recursive=recursive)
            if not inside:
                raise UserError(f"{path} is a folder without images ({', '.join(suffixes)})", "images.none")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _is_zarr(folder: Path) -> bool:
    from gcsa.images.ome_zarr import is_zarr  # of which NumPy and tifffile are imported

    return is_zarr(folder)


def check_output(name: str, images: Iterable[Path]) -> None:
    """Raises UserError for a file that cannot be written, and for one of the images."""
    target = check_writable(name)
    if any(path.resolve() == target for path in images):
        raise UserError(
            f"--output {name} is one of the images, and would be overwritten: name another file", "output.is_input"
        )


def check_folder(folder: Path, name: str, option: str = "output") -> None:
    """Raises UserError where no file `name` can be written into the folder of an option, which need not be there yet."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--{option} {folder} is a file: name a folder", f"{option}.is_file")
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    check_writable(there / name)


def check_outside(folder: Path, images: Iterable[Path]) -> None:
    """Raises UserError for an output folder that is, or lies in, the folder of an image of OME-Zarr."""
    target = folder.resolve()
    for path in images:
        if path.is_dir() and path.resolve() in (target, *target.parents):
            raise UserError(f"--output {folder} is in the image {path}: name another folder", "output.in_image")


def check_stems(stems: Iterable[tuple[str, Path]], done: str) -> None:
    """Raises UserError for two images with one stem, whose files would be the same, before they are `done`."""
    by_stem: dict[str, Path] = {}
    for stem, path in stems:
        other = by_stem.setdefault(stem.casefold(), path)
        if other != path:
            raise UserError(
                f"{other} and {path} have one name, and so would their files: {done} them into folders of their own",
                "images.same_name",
            )
