"""Read text: `transcribe.py gcsa_ocr_tiny.fr17 page.jpg lines/ page.xml > text.txt`.

Text is written without file names, as kraken and tesseract write it: a line of output for every line of input, empty where that
could not be read. JSON is an object a line, with "error" instead of "text" there. PAGE-XML and ALTO also hold the positions of
lines and characters, in one file a page; an XML file that is read comes back with the text in it. All output is UTF-8.

Exit codes: 0, all read; 1, something could not be read, listed on stderr; 2, wrong arguments, before anything is read;
130, interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import MissingExtraError, UserError
from gcsa._utils.program import program
from gcsa._utils.published import ADAPTER_CONFIG, published
from gcsa.cli.arguments import add_hardware, count, device
from gcsa.cli.errors import Parser, tell_failed, user_errors
from gcsa.cli.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.cli.output import SCREEN, written
from gcsa.tasks import load
from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.inputs import Transcript, find_lines, input_files
from gcsa.tasks.recognition.pages.layout import FORMATS, PageFinder, has_kraken
from gcsa.tasks.recognition.pages.output import check_inputs_kept, check_pages, page_contents, target_of
from gcsa.tasks.recognition.predict import doubt
from gcsa.tasks.recognition.reading import ORIENTATIONS, check_orientation


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog=program("transcribe"),
        usage="%(prog)s [options] MODEL [ADAPTER] IMAGES...",
        description="Reads pages and text lines.",
        epilog="Exit code 1 if something could not be read: it is listed on stderr, everything else is transcribed.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help=".ckpt of train.py, folder of weights, or the name of published ones"
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="IMAGES",
        help=f"images of lines or pages, PAGE-XML or ALTO files, folders of them; before them may stand a folder with {ADAPTER_CONFIG}",
    )
    parser.add_argument("--adapter", metavar="FOLDER", help="the same by name")
    parser.add_argument(
        "--orientation",
        choices=ORIENTATIONS,
        help="any: rotated by any multiple of 90 degrees (default, if the group of the encoder has these rotations)",
    )
    parser.add_argument("--beams", type=count(1000), default=1, help="of a beam search (default 1: greedy, faster)")
    parser.add_argument(
        "--batch-size", type=count(10_000), default=16, metavar="LINES", help="read together (default 16)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", *FORMATS),
        default="text",
        help="json: an object a line, with confidence and orientation; page, alto: XML of pages; such a file comes back with the text in it",
    )
    parser.add_argument(
        "--output",
        default="-",
        metavar="FILE",
        help="written whole or not at all; default - is stdout; of several pages as XML a folder",
    )
    parser.add_argument(
        "--any-image", action="store_true", help="PAGE and ALTO may name images outside of their folder"
    )
    parser.add_argument(
        "--precision",
        choices=("32", "bf16"),
        default="32",
        help="of the numbers; bf16 is faster on processors with AMX; one line in fifty is read otherwise",
    )
    add_hardware(parser)
    args = parser.parse_intermixed_args(argv)
    first = published(args.inputs[0]) or Path(args.inputs[0])
    if args.adapter is not None:
        args.adapter = published(args.adapter) or args.adapter
    elif (first / ADAPTER_CONFIG).is_file():
        args.adapter = first
        if not args.inputs[1:]:
            parser.error("nothing to read: give images behind the adapter")
        del args.inputs[0]
    return args


def _formatted(transcript: Transcript, kind: str) -> str:
    if kind == "json":
        return json.dumps(transcript.as_dict(), ensure_ascii=False)
    return transcript.reading.text if transcript.reading is not None else ""


@contextmanager
def _progress(total: int, shown: bool) -> Iterator[Callable[[int], object]]:
    """What to call with the number of lines just read, for a bar on stderr where that is a terminal.

    The bar would mix with text on the same terminal, and is then not `shown`.
    """
    console = Console(stderr=True)
    disable = not (console.is_terminal and (shown or not sys.stdout.isatty()))
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console, disable=disable) as progress:
        task = progress.add_task("lines", total=total)
        yield lambda count: progress.advance(task, count)


def _check_inputs(inputs: Sequence[str]) -> None:
    for name in inputs:
        path = Path(name)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(
                f"{name} is a device or a pipe: give line images, PAGE-XML or ALTO files, or folders of them"
            )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    as_pages = args.format in FORMATS
    keep_freed_memory()
    keep_compiled_kernels()
    with user_errors():
        if args.threads is not None:
            torch.set_num_threads(args.threads)
        if args.output != SCREEN and not (as_pages and Path(args.output).is_dir()):
            check_writable(args.output)
        _check_inputs(args.inputs)
        if as_pages or args.output != SCREEN:
            files = [file for name in args.inputs for file in input_files(name)]
            if as_pages:
                check_pages(files, args.format, args.output, args.beams)
            if args.output != SCREEN:
                check_inputs_kept(files, args.output, as_pages)
        if args.adapter is not None and find_spec("peft") is None:
            raise MissingExtraError("an adapter needs PEFT, which is not installed: pip install gcsa-vit[ocr]")
        chosen = device(args.device)
        predictor: Any = load(args.model, args.adapter, "recognition").to(chosen).fold()
        orientation = args.orientation or predictor.orientation
        check_orientation(orientation, predictor.group)
        finder = PageFinder(predictor.page_orientation if orientation == "any" else None) if has_kraken() else None

        def find_on(file: Path) -> list[Line]:
            assert finder is not None
            with Console(stderr=True).status(f"finding the lines of {file.name}"):  # which takes most of a minute
                return finder(file)

        sources = find_lines(args.inputs, args.any_image, find_on if finder else None)
        on_pages: list[Transcript] = []
        read: list[tuple[int, float]] = []
        failed: list[str] = []
        half = torch.autocast(chosen.type, torch.bfloat16, enabled=args.precision == "bf16")
        with (
            half,
            written(SCREEN if as_pages else args.output) as file,
            _progress(len(sources), file is not sys.stdout) as advance,
        ):
            for transcript in predictor.transcribe(sources, orientation, args.beams, args.batch_size, advance):
                if as_pages:
                    on_pages.append(transcript)
                else:
                    print(_formatted(transcript, args.format), file=file)
                if transcript.reading is None:
                    failed.append(transcript.error)
                else:
                    read.append((len(transcript.reading.text), transcript.reading.confidence))
        if as_pages:
            segmentations = finder.segmentations if finder else {}
            for page, content in page_contents(on_pages, segmentations, args.format).items():
                with written(args.output if args.output == SCREEN else str(target_of(page, args.output))) as file:
                    print(content, file=file)
        tell_failed(failed, len(sources), "read")
        if sentence := doubt(read):
            print(sentence, file=sys.stderr)
    return 1 if failed else 0
