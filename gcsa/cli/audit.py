"""Measure rotation: `gcsa audit timm:resnet18 --images patches/ --output audit/`.

The answers of any network are compared when its images rotate and reflect. A table, a figure of the change against the angle, a
JSON file, and one sentence say what is exact. With --symmetry the same network is measured made exact, beside it.

Exit codes: 0, measured; 1, some images could not be read; 2, wrong arguments or a network that cannot be opened; 130, interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table
from torch import Tensor, nn

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import check_writable, write_json
from gcsa._utils.errors import UserError, one_line
from gcsa.cli.arguments import (
    NETWORKS,
    add_hardware,
    add_symmetry,
    count,
    device,
    find_images,
    symmetrized,
    symmetry_options,
)
from gcsa.cli.errors import Parser, tell_failed
from gcsa.cli.running import running
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.evaluation.figures import colours, save
from gcsa.evaluation.poses import Change, Turn, compare, exact_symmetry, outputs, turns, verdict
from gcsa.images.reader import read_picture
from gcsa.integrations.networks import KINDS, Subject, is_foreign, open_segmenter, open_subject
from gcsa.tasks import load
from gcsa.tasks.classification.off_grid import families, off_grid
from gcsa.tasks.recognition.audit import audit as reader_audit
from gcsa.tasks.segmentation.audit import audit as segmenter_audit
from gcsa.tasks.segmentation.choices import OUTPUTS
from gcsa.tasks.segmentation.predict import SegmentationPredictor
from gcsa.training.results import git_commit, machine

FIGURES = {
    "classifier": {"answers": "answers that change", "probability": "change of a probability"},
    "embedding": {
        "cosine": "cosine distance",
        "neighbours": "nearest images kept",
        "distance": "distance / between images",
    },
    "segmenter": {"pixels": "pixels that change", "objects": "objects that change"},
    "reader": {"texts": "texts that change", "characters": "characters that change"},
}
"""The columns of the table, by kind."""
CURVE = {"classifier": "answers", "embedding": "distance", "segmenter": "pixels", "reader": "texts"}
"""What the figure shows."""
WHOLE = {"segmentation": "segmenter", "recognition": "reader"}
"""What the weights of a task are audited as, where that is not a row of numbers."""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa audit",
        description="Measures how the answers of any network change when its images rotate and reflect.",
        epilog="A file .pt, .pt2 or MODULE:FUNCTION runs the code that it holds: audit those that you trust.",
    )
    parser.add_argument(
        "source",
        metavar="NETWORK",
        help=NETWORKS,
    )
    parser.add_argument("--images", nargs="+", required=True, metavar="IMAGES", help="images, and folders of them")
    parser.add_argument(
        "--kind", choices=KINDS, help="default: that of weights of gcsa, embedding for timm:NAME, else classifier"
    )
    parser.add_argument("--size", type=count(4096), help="pixels a side; default: the network's, or 224")
    parser.add_argument("--outputs", choices=OUTPUTS, help="of a segmenter of others (default classes)")
    add_symmetry(parser)
    parser.add_argument("--angles", type=count(360), default=16, help="around the circle (default 16)")
    parser.add_argument(
        "--off-grid",
        action="store_true",
        help="also shift, blur, magnify, compress, stain and light the images otherwise",
    )
    parser.add_argument("--limit", type=count(1_000_000), help="the first images only")
    parser.add_argument("--batch-size", type=count(10_000), default=32, metavar="IMAGES", help="together (default 32)")
    parser.add_argument("--output", metavar="FOLDER", help="for audit.json and audit.png")
    add_hardware(parser)
    return parser.parse_args(argv)


def _check_output(folder: Path, images: Sequence[Path]) -> None:
    """Raises UserError for a folder that cannot be written to, and for one in which the figure would become an image."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder} is a file: name a folder")
    if folder.resolve() in {path.resolve().parent for path in images}:
        raise UserError(f"--output {folder} holds images, among which the figure would be one: name another folder")
    if folder.exists():
        check_writable(folder / "audit.json")


def _batches(
    subject: Subject, images: Sequence[Path], size: int, failed: list[str], where: torch.device
) -> Iterator[Tensor]:
    """Prepared images; a sentence for each that cannot be read goes to `failed`."""
    for start in range(0, len(images), size):
        batch = []
        for path in images[start : start + size]:
            try:
                batch.append(subject.prepare(path))
            except ValueError as error:
                failed.append(str(error))
        if batch:
            yield torch.stack(batch).to(where)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """A bar on terminals only; yields what advances it."""
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("images", total=total)
        yield lambda done: bar.advance(task, done)


def _open_whole(args: argparse.Namespace) -> Any:
    """The predictor of a segmenter or a reader, which sees whole pictures; None for other networks."""
    asked, predictor = args.kind in WHOLE.values(), None
    if args.source.startswith("timm:") or args.source.endswith(".py") or is_foreign(args.source):
        kind = args.kind if asked else None
        if asked and (args.kind == "reader" or args.source.startswith("timm:")):
            raise UserError(f"{args.source} cannot be audited as a {args.kind}: that is for weights of gcsa")
    else:
        predictor = load(args.source)
        kind = WHOLE.get(predictor.kind)
        if args.kind is not None and (asked or kind) and args.kind != kind:
            raise UserError(f"{args.source} holds weights for {predictor.kind}: leave out --kind {args.kind}")
    if args.outputs is not None and (kind != "segmenter" or predictor is not None):
        raise UserError(f"--outputs {args.outputs} is for segmenters of others: leave it out, or add --kind segmenter")
    if kind is None:
        return None
    if args.off_grid:
        raise UserError(f"--off-grid is for classifiers and embeddings: leave it out for a {kind}")
    if args.size is not None:
        raise UserError(f"--size is for classifiers and embeddings: a {kind} takes pictures of any size")
    if args.symmetry is not None and (kind == "reader" or args.symmetry == "averaged"):
        choose = "--symmetry canonical" if kind == "segmenter" else "gcsa transcribe --orientation any"
        raise UserError(f"--symmetry {args.symmetry} is not for a {kind}: use {choose}")
    if args.rotations is not None:
        raise UserError(f"--rotations is for classifiers and embeddings: leave it out for a {kind}")
    options = symmetry_options(args)
    if predictor is None:
        return SegmentationPredictor(open_segmenter(args.source, args.outputs))
    options.check_needed(args.source, predictor.group)
    return predictor


def _measure_whole(
    predictor: Any, kind: str, images: Sequence[Path], args: argparse.Namespace
) -> tuple[list[Change], list[str]]:
    failed: list[str] = []

    def pictures() -> Iterator[Array]:
        for path in images:
            try:
                yield read_picture(path, predictor.network.in_chans if kind == "segmenter" else 3)
            except (ValueError, OSError) as error:
                failed.append(f"{path}: {one_line(error)}" if str(path) not in str(error) else str(error))

    each = len(turns(args.angles)) + 1 if kind == "segmenter" else 4
    with _progress(each * len(images)) as advance:
        if kind == "segmenter":
            found, is_empty = segmenter_audit(predictor, pictures(), args.angles, advance)
            if is_empty and len(failed) < len(images):
                print("no label map holds anything but background, so it says little that they stay", file=sys.stderr)
        else:
            found = reader_audit(predictor, pictures(), advance)
    if len(failed) == len(images):
        raise UserError(f"none of the {len(images)} images could be read: {failed[0]}")
    return found, failed


def _measure(
    subject: Subject, network: nn.Module, images: Sequence[Path], args: argparse.Namespace, where: torch.device
) -> tuple[list[Change], list[str]]:
    failed: list[str] = []
    with _progress(len(images) * (len(turns(args.angles)) + 1)) as advance, evaluation_mode(network):
        batches = _batches(subject, images, args.batch_size, failed, where)
        try:
            found = outputs(network, batches, args.angles, advance)
        except (UserError, OSError):
            raise
        except Exception as error:  # of a stranger's network
            raise UserError(
                f"{args.source} does not take these images ({type(error).__name__}: {one_line(error)})"
            ) from error
    rows = next(iter(found.values()), torch.zeros(0, 0))
    if not len(rows):
        raise UserError(f"none of the {len(images)} images could be read: {failed[0]}")
    if subject.kind == "classifier" and rows.shape[1] < 2:
        raise UserError(f"{args.source} gives one number for an image: take --kind embedding")
    if subject.kind == "embedding" and len(rows) < 2:
        raise UserError("features are compared with those of other images: give two images or more")
    if any(not values.isfinite().all() for values in found.values()):
        raise UserError(f"{args.source} gives NaN or infinite outputs")
    if subject.kind == "classifier" and len(found[Turn(0.0)].argmax(1).unique()) == 1:
        print(
            f"all images have one answer of {rows.shape[1]}, so it says little how many change. Features: --kind embedding",
            file=sys.stderr,
        )
    return compare(found, subject.kind), failed


def _measure_off_grid(
    subject: Subject, network: nn.Module, images: Sequence[Path], args: argparse.Namespace, where: torch.device
) -> dict[str, dict[str, float]]:
    """What `off_grid` finds; images that cannot be read were told of before."""
    prepare = subject.prepare
    passes = sum(map(len, families(len(prepare.mean), args.angles).values()))
    with _progress(passes * len(images)) as advance, evaluation_mode(network):
        batches = _batches(subject, images, args.batch_size, [], where)
        return off_grid(network, batches, prepare.mean, prepare.std, subject.kind, args.angles, advance)


def _off_grid_table(found: dict[str, dict[str, float]], kind: str, name: str) -> Table:
    moves = "answers that change" if kind == "classifier" else "images that are no longer their own nearest"
    screen = Table(title=f"One step off the grid, {name}: {moves}")
    for words in ("family", "mean, %", "worst, %", "the worst"):
        screen.add_column(words, justify="right" if "%" in words else "left", no_wrap=True)
    for family, members in found.items():
        worst = max(members, key=lambda name: members[name])
        mean = sum(members.values()) / len(members)
        screen.add_row(family, f"{100 * mean:.1f}", f"{100 * members[worst]:.1f}", worst if members[worst] else "")
    return screen


def _table(changes: Sequence[Change], kind: str, title: str) -> Table:
    screen = Table(title=title)
    screen.add_column("pose", no_wrap=True)
    is_whole = kind in WHOLE.values()
    for words in ([] if is_whole else ["relative change"]) + [*FIGURES[kind].values()]:
        screen.add_column(words, justify="right", min_width=8)
    for change in changes:
        values = [getattr(change, key) for key in FIGURES[kind]]
        cells = ["" if value is None else f"{value:.3f}" for value in values]
        cells = cells if is_whole else [f"{change.relative:.1e}", *cells]
        screen.add_row(str(change.turn), *cells, end_section=change.turn.degrees == 270 and change.turn.is_exact)
    return screen


def _figure(systems: dict[str, list[Change]], kind: str, title: str) -> Figure:
    """The change against the angle: dots for the exact ones, a line for those between."""
    figure = Figure(figsize=(7.5, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    key = CURVE[kind]
    for colour, (name, changes) in zip(colours(len(systems)), systems.items(), strict=True):
        for is_exact, style in ((False, dict(lw=2, label=name)), (True, dict(ls="", marker="o"))):
            some = [c for c in changes if c.turn.is_exact == is_exact and not c.turn.reflected]
            places, values = [c.turn.degrees for c in some], [getattr(c, key) for c in some]
            axes.plot(places, values, color=colour, **style)
    axes.set_xticks(range(0, 361, 45))
    axes.set_xlabel("rotation, degrees counter-clockwise; dots: exact on the pixel grid; line: resampled between them")
    axes.set_ylabel(FIGURES[kind][key])
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    figure.legend(loc="outside lower center", ncols=len(systems), frameon=False)
    return figure


def _wrapping(args: argparse.Namespace) -> str:
    """What --symmetry and --rotations make of the network, in words; empty without them."""
    rotations = None if args.rotations is None else f"{args.rotations} rotations"
    return ", ".join(filter(None, (args.symmetry, rotations)))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running(args.threads):
        images = find_images(args.images, recursive=True)[: args.limit]
        if args.output is not None:
            _check_output(Path(args.output), images)
        where = device(args.device)
        systems, steady = {}, {}
        if predictor := _open_whole(args):
            kind, size = WHOLE[predictor.kind], None
            predictor.to(where)
            systems["as it is"], failed = _measure_whole(predictor, kind, images, args)
            if args.symmetry is not None:
                predictor.make_exact(args.symmetry, args.group)
                systems[args.symmetry], failed = _measure_whole(predictor, kind, images, args)
        else:
            subject = open_subject(args.source, args.kind, args.size)
            kind, size = subject.kind, subject.prepare.size
            networks: dict[str, nn.Module] = {"as it is": subject.network}
            networks |= {_wrapping(args) or "as it is": symmetrized(subject.network, args, subject.group)}
            for name, network in networks.items():
                systems[name], failed = _measure(subject, network.to(where), images, args, where)
                if args.off_grid:
                    steady[name] = _measure_off_grid(subject, network, images, args, where)
        read = len(images) - len(failed)
        title = f"{args.source}, {kind}, {read} images" + (f" of {size} x {size}" if size else "")
        console = Console()
        for name, changes in systems.items():
            console.print(_table(changes, kind, f"{title}, {name}"))
        for name, moved in steady.items():
            console.print(_off_grid_table(moved, kind, name))
        sentences = {name: verdict(changes, kind) for name, changes in systems.items()}
        for name, sentence in sentences.items():
            console.print(f"{name}: {sentence}", highlight=False, soft_wrap=True)
        if args.output is not None:
            folder = Path(args.output)
            folder.mkdir(parents=True, exist_ok=True)
            found = {
                name: {
                    "verdict": sentences[name],
                    "group": str(exact_symmetry(changes)),
                    "changes": [asdict(c) for c in changes],
                    "off_grid": steady.get(name),
                }
                for name, changes in systems.items()
            }
            about = {"network": args.source, "kind": kind, "images": read, "size": size}
            print(save(_figure(systems, kind, title), folder / "audit.png"))
            print(
                write_json(
                    folder / "audit.json", about | {"systems": found, "commit": git_commit(), "machine": machine()}
                )
            )
        tell_failed(failed, len(images), "measured")
    return 1 if failed else 0
