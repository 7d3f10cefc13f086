"""An adapter for a book: `gcsa adapt PAGES --base gcsa_ocr_tiny.print --output my_book`.

PAGES are corrected lines of the book: PAGE-XML or ALTO, as eScriptorium exports them, or images of lines with their texts. Some of
them are held out: stdout says how they were read before and after, and the command that reads the book with the adapter.

Exit codes: 0; 1, a fault of gcsa; 2, wrong arguments or too few lines, before anything is trained; 130, interrupted.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from gcsa._utils.errors import UserError
from gcsa._utils.importing import check_peft
from gcsa._utils.memory import keep_freed_memory
from gcsa.cli.arguments import add_threads, check_folder
from gcsa.cli.composition import HYDRA_USERS, conf_folder, explain
from gcsa.cli.errors import Parser, user_errors

if TYPE_CHECKING:
    from gcsa.tasks.recognition.adapt import Adaptation
    from gcsa.weights import Weights


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="gcsa adapt", description="Adapts a recogniser to a book, from corrected lines of it.")
    parser.add_argument(
        "pages",
        metavar="PAGES",
        help="folder of PAGE-XML or ALTO files with their images, or of NAME.png with NAME.gt.txt",
    )
    parser.add_argument(
        "--base",
        default="gcsa_ocr_tiny.print",
        metavar="WEIGHTS",
        help="name of published weights, a folder of weights, or a .ckpt of train.py (default %(default)s)",
    )
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="folder to write the adapter to, whole or not at all"
    )
    parser.add_argument(
        "--any-image", action="store_true", help="let the XML files name images outside of their folder"
    )
    add_threads(parser, "those that are free")
    return parser.parse_args(argv)


def _composed(base: Weights, args: argparse.Namespace) -> DictConfig:
    """conf/experiment/ocr_adapter.yaml for `args`, without curves."""
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        cfg = compose(
            "train",
            ["experiment=ocr_adapter", f"model={base.architecture}", "logger=none", "callbacks=default", "test=false"],
        )
    cfg.data.path, cfg.data.any_image, cfg.threads = args.pages, args.any_image, args.threads
    return cfg


def _summary(found: Adaptation, args: argparse.Namespace) -> str:
    rates = [
        f"CER {when} {scores.cer:.2%} (95 %: {scores.cer_interval[0]:.2%} to {scores.cer_interval[1]:.2%})"
        for when, scores in (("before", found.before), ("after", found.after))
    ]
    from gcsa.tasks.recognition.pages.page_xml import format_of, list_pages

    pages = list_pages(Path(args.pages))
    kind = format_of(pages[0]) if pages else "text"
    command = [args.base, args.output, "BOOK/", "--format", kind, "--output", "READ/"]
    return "\n".join(
        [
            f"{found.lines['test']} held-out lines:",
            *rates,
            f"adapter  {args.output}",
            f"gcsa transcribe {shlex.join(command)}",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    keep_freed_memory()
    with user_errors(users=HYDRA_USERS, explain=explain):
        output = Path(args.output)
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise UserError(f"--output {output} is there already: name a new folder", "output.exists", output=output)
        check_folder(output.parent, output.name)
        from gcsa.tasks.recognition.adapt import adapt_recognizer, corrected_lines
        from gcsa.weights import read

        check_peft()
        corrected_lines(args.pages, args.any_image)
        base = read(args.base)
        if base.task != "recognition":
            raise UserError(
                f"--base {args.base} reads no text: name a recogniser, such as gcsa_ocr_tiny.print",
                "base.no_recognizer",
            )
        print(_summary(adapt_recognizer(_composed(base, args), base, output), args))
    return 0
