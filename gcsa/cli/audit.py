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
from typing import TYPE_CHECKING, Any

from gcsa._utils.atomic import write_json
from gcsa._utils.errors import UserError
from gcsa.cli.arguments import (
    NETWORKS,
    add_batch_size,
    add_hardware,
    add_symmetry,
    check_folder,
    check_network,
    count,
    device,
    find_images,
    symmetrized,
    symmetry_options,
)
from gcsa.cli.errors import Parser, tell_failed
from gcsa.cli.running import compute_on, running
from gcsa.tasks.segmentation.choices import OUTPUTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from gcsa.evaluation.audited import Audited
    from gcsa.evaluation.poses import Change

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
WHOLE = ("segmenter", "reader")
"""Kinds that see whole images; of the others an image is a row of numbers."""
KINDS = tuple(FIGURES)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa audit",
        description="Measures how the answers of any network change when its images rotate and reflect.",
        epilog="A file .pt, .pt2 or MODULE:FUNCTION runs the code that it holds: audit those that you trust.",
    )
    parser.add_argument("source", metavar="NETWORK", help=NETWORKS)
    parser.add_argument("--images", nargs="+", required=True, metavar="IMAGES", help="images, and folders of images")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        help="kind of the network (default: what the weights of gcsa say, embedding for timm:NAME, else classifier)",
    )
    parser.add_argument(
        "--size", type=count(4096), help="side of the images in pixels (default: that of the network, or 224)"
    )
    parser.add_argument(
        "--outputs", choices=OUTPUTS, help="what the maps of a segmenter that is not of gcsa are (default classes)"
    )
    add_symmetry(parser)
    parser.add_argument("--angles", type=count(360), default=16, help="number of angles around the circle (default 16)")
    parser.add_argument(
        "--off-grid",
        action="store_true",
        help="also shift, blur, magnify and compress the images, and change their stain and light",
    )
    parser.add_argument(
        "--limit", type=count(1_000_000), help="number of images to read, from the first on (default: all)"
    )
    add_batch_size(parser, "computed")
    parser.add_argument("--output", metavar="FOLDER", help="folder to write audit.json and audit.png to")
    add_hardware(parser)
    return parser.parse_args(argv)


def _check_output(folder: Path, images: Sequence[Path]) -> None:
    """Raises UserError for a folder that cannot be written to, and for one in which the figure would become an image."""
    if folder.resolve() in {path.resolve().parent for path in images}:
        raise UserError(
            f"--output {folder} holds images, among which the figure would be one: name another folder",
            "output.holds_images",
        )
    check_folder(folder, "audit.json")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """A bar on terminals only; yields what advances it."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("images", total=total)
        yield lambda done: bar.advance(task, done)


def _open(args: argparse.Namespace) -> Any:
    """The predictor of the network. Raises UserError for options that are not of it."""
    from gcsa.models.foreign import is_foreign
    from gcsa.tasks import load

    foreign = is_foreign(args.source)
    if foreign and args.kind in WHOLE and (args.kind == "reader" or args.source.startswith("timm:")):
        raise UserError(
            f"{args.source} cannot be audited as a {args.kind}: that is for weights of gcsa", "audit.foreign_kind"
        )
    if args.outputs is not None and not (foreign and args.kind == "segmenter"):
        raise UserError(
            f"--outputs {args.outputs} is for segmenters of others: leave it out, or add --kind segmenter",
            "outputs.not_segmenter",
        )
    kind = args.kind
    if not foreign:
        predictor: Any = load(args.source)
        kind = predictor.audit_kind
        if args.kind is not None and (args.kind in WHOLE or kind) and args.kind != kind:
            raise UserError(
                f"{args.source} holds weights for {predictor.kind}: leave out --kind {args.kind}", "audit.kind"
            )
    if kind in WHOLE:
        _check_whole(args, kind)
    if foreign:
        task = "segmentation" if kind == "segmenter" else None
        return load(args.source, task=task, outputs=args.outputs, trust_code=True)
    if kind not in WHOLE:
        return predictor.fold()
    symmetry_options(args).check_needed(args.source, predictor.group)
    return predictor


def _check_whole(args: argparse.Namespace, kind: str) -> None:
    """Raises UserError for options that are not of networks that see whole images."""
    if args.off_grid:
        raise UserError(f"--off-grid is for classifiers and embeddings: leave it out for a {kind}", "off_grid.kind")
    if args.size is not None:
        raise UserError(f"--size is for classifiers and embeddings: a {kind} takes images of any size", "size.kind")
    if args.symmetry is not None and (kind == "reader" or args.symmetry == "averaged"):
        choose = "--symmetry canonical" if kind == "segmenter" else "gcsa transcribe --orientation any"
        raise UserError(f"--symmetry {args.symmetry} is not for a {kind}: use {choose}", "symmetry.kind")
    if args.rotations is not None:
        raise UserError(f"--rotations is for classifiers and embeddings: leave it out for a {kind}", "rotations.kind")


def _measure(predictor: Any, images: Sequence[Path], args: argparse.Namespace) -> dict[str, Audited]:
    """What was measured of the network as it is, and as the options make it."""
    from gcsa.evaluation.audited import AuditOptions

    where = device(args.device)
    predictor.to(where)
    kind = args.kind or ("embedding" if args.source.startswith("timm:") else "classifier")
    options = AuditOptions(
        args.source, args.angles, kind, args.size, args.batch_size, device=where, off_grid=args.off_grid
    )
    if predictor.audit_kind:
        found = {"as it is": predictor.audit(images, options, progress=_progress)}
        if args.symmetry is not None:
            predictor.make_exact(args.symmetry, args.group)
            found[args.symmetry] = predictor.audit(images, options, progress=_progress)
        return found
    from gcsa.tasks.classification.audit import network_of

    network = network_of(predictor, options)
    networks = {"as it is": network, _wrapping(args) or "as it is": symmetrized(network, args, predictor.group)}
    return {
        name: predictor.audit(images, options, system.to(where), progress=_progress)
        for name, system in networks.items()
    }


def _off_grid_table(found: dict[str, dict[str, float]], kind: str, name: str) -> Table:
    from rich.table import Table

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
    from rich.table import Table

    screen = Table(title=title)
    screen.add_column("pose", no_wrap=True)
    is_whole = kind in WHOLE
    for words in ([] if is_whole else ["relative change"]) + [*FIGURES[kind].values()]:
        screen.add_column(words, justify="right", min_width=8)
    for change in changes:
        values = [getattr(change, key) for key in FIGURES[kind]]
        cells = ["" if value is None else f"{value:.3f}" for value in values]
        cells = cells if is_whole else [f"{change.relative:.1e}", *cells]
        screen.add_row(str(change.turn), *cells, end_section=change.turn.degrees == 270 and change.turn.is_exact)
    return screen


def _figure(systems: dict[str, list[Change]], kind: str, title: str) -> Figure:
    """The change against the angle: dots for the exact ones, through which a line goes for those between."""
    from matplotlib.figure import Figure

    from gcsa.evaluation.figures import colours

    figure = Figure(figsize=(7.5, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    key = CURVE[kind]
    for colour, (name, changes) in zip(colours(len(systems)), systems.items(), strict=True):
        found = {change.turn.degrees: getattr(change, key) for change in changes if not change.turn.reflected}
        found |= {0: 0.0, 360: 0.0}  # the image itself
        axes.plot(sorted(found), [found[angle] for angle in sorted(found)], color=colour, lw=2, label=name)
        exact = [angle for angle in sorted(found) if angle % 90 == 0]
        axes.plot(exact, [found[angle] for angle in exact], color=colour, ls="", marker="o")
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
    with running():
        images = find_images(args.images, recursive=True)[: args.limit]
        if args.output is not None:
            _check_output(Path(args.output), images)
        check_network(args)
        from rich.console import Console

        from gcsa.evaluation.poses import exact_symmetry, verdict

        compute_on(args.threads)
        systems = _measure(_open(args), images, args)
        first = systems["as it is"]
        read = len(images) - len(first.failed)
        size = f" of {first.size} x {first.size}" if first.size else ""
        title = f"{args.source}, {first.kind}, {read} images{size}"
        console = Console()
        for note in dict.fromkeys(found.note for found in systems.values() if found.note):
            print(note, file=sys.stderr)
        for name, found in systems.items():
            console.print(_table(found.changes, found.kind, f"{title}, {name}"))
        for name, found in systems.items():
            if found.off_grid is not None:
                console.print(_off_grid_table(found.off_grid, found.kind, name))
        sentences = {name: verdict(found.changes, found.kind) for name, found in systems.items()}
        for name, sentence in sentences.items():
            console.print(f"{name}: {sentence}", highlight=False, soft_wrap=True)
        if args.output is not None:
            content = {
                name: {
                    "verdict": sentences[name],
                    "group": str(exact_symmetry(found.changes)),
                    "changes": [asdict(change) for change in found.changes],
                    "off_grid": found.off_grid,
                }
                for name, found in systems.items()
            }
            about = {"network": args.source, "kind": first.kind, "images": read, "size": first.size}
            _write(Path(args.output), about | {"systems": content}, systems, title)
        tell_failed(first.failed, len(images), "measured")
    return 1 if first.failed else 0


def _write(folder: Path, content: dict[str, Any], systems: dict[str, Audited], title: str) -> None:
    """Writes the figure and the table as JSON, and names them on stdout."""
    from gcsa.evaluation.figures import save
    from gcsa.training.results import git_commit, machine

    folder.mkdir(parents=True, exist_ok=True)
    kind = systems["as it is"].kind
    print(save(_figure({name: found.changes for name, found in systems.items()}, kind, title), folder / "audit.png"))
    print(write_json(folder / "audit.json", content | {"commit": git_commit(), "machine": machine()}))
