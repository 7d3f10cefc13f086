"""Read text: `transcribe.py gcsa_ocr_tiny.fr17 page.jpg lines/ page.xml > text.txt`.

A model is a .ckpt of train.py, a folder of weights or the name of published ones, an adapter the folder that PEFT wrote. Text comes without file
names, as from kraken and tesseract, one line of output for every line of input, empty where that could not be read;
JSON comes as one object a line, with "error" instead of "text" there. On the image of a page kraken finds the lines first; PAGE-XML
and ALTO say where they and their characters are, one file a page. An XML file that says where the lines are comes back with the text
in them. All output is UTF-8.
Exit codes: 0, all read; 1, something could not be read, listed on stderr; 2, wrong arguments, before anything is read;
130, interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import MissingExtraError, UserError
from gcsa._utils.program import program
from gcsa._utils.published import published
from gcsa.cli.arguments import count, device
from gcsa.cli.errors import Parser, user_errors
from gcsa.cli.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.images.reader import image_size
from gcsa.models.folding import fold
from gcsa.tasks import load
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.layout import FORMATS, PageFinder, has_kraken, write
from gcsa.tasks.recognition.pages.page_xml import format_of
from gcsa.tasks.recognition.pages.text import write_text
from gcsa.tasks.recognition.reading import ORIENTATIONS, Reading, check_orientation
from gcsa.tasks.recognition.transcribe import ADAPTER, Transcript, find_lines, input_files, is_page, is_xml, transcribe

CONFIDENT = 0.92
"""Below this on average, four characters in ten were wrong in scripts that the French recogniser was not made for (Fraktur,
minuscule, Arabic: 0.91 and below), and one in twenty above it (0.96)."""


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
        help=f"images of lines or pages, PAGE-XML or ALTO files, folders of them; before them may stand a folder with {ADAPTER}",
    )
    parser.add_argument("--adapter", metavar="FOLDER", help="the same by name")
    parser.add_argument(
        "--orientation",
        choices=ORIENTATIONS,
        help="any: lines may lie on any side (default, where the encoder has quarter turns)",
    )
    parser.add_argument("--beams", type=count(1000), default=1, help="of a beam search (default 1: greedy, faster)")
    parser.add_argument(
        "--batch-size", type=count(10_000), default=16, metavar="LINES", help="read together (default 16)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", *FORMATS),
        default="text",
        help="json: an object a line, with confidence and turn; page, alto: XML of pages; such a file comes back with the text in it",
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
    parser.add_argument("--threads", type=count(1000), help="of the CPU (default: one a core)")
    parser.add_argument(
        "--precision",
        choices=("32", "bf16"),
        default="32",
        help="of the numbers; bf16 is faster on processors with AMX; one line in fifty is read otherwise",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default %(default)s")
    args = parser.parse_intermixed_args(argv)
    first = published(args.inputs[0]) or Path(args.inputs[0])
    if args.adapter is not None:
        args.adapter = published(args.adapter) or args.adapter
    elif (first / ADAPTER).is_file():
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
    """What to call with the number of lines just read: a bar on stderr, where that is a terminal. It would tear the
    text apart if that went to the same terminal, and is then not `shown`."""
    console = Console(stderr=True)
    disable = not (console.is_terminal and (shown or not sys.stdout.isatty()))
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console, disable=disable) as progress:
        task = progress.add_task("lines", total=total)
        yield lambda count: progress.advance(task, count)


def _finder(model: CTCRecognizer, orientation: str) -> PageFinder | None:
    """What finds lines on pages, and says so on a terminal, as it takes most of a minute."""
    if not has_kraken():
        return None
    console = Console(stderr=True)

    class Shown(PageFinder):
        def __call__(self, file: Path) -> list[Line]:
            with console.status(f"finding the lines of {file.name}"):
                return super().__call__(file)

    return Shown(model, orientation)


def _doubt(counted: Sequence[tuple[int, float]]) -> str:
    """A sentence where what was read, lines of (characters, confidence), is doubtful as a whole, else nothing."""
    characters = sum(length for length, _ in counted)
    confidence = sum(length * confidence for length, confidence in counted) / max(1, characters)
    if not characters or confidence >= CONFIDENT:
        return ""
    return (
        f"The text was read with a confidence of {confidence:.2f}, below {CONFIDENT}: expect many errors. Was the model "
        "made for this script and type?"
    )


def _write_pages(transcripts: Sequence[Transcript], finder: PageFinder | None, kind: str, output: str) -> None:
    """The pages among `transcripts` as XML, to stdout, a file, or a folder where there are several."""
    pages: dict[Path, list[Reading | None]] = {}
    for transcript in transcripts:
        if transcript.source.line is not None:
            pages.setdefault(transcript.source.file, []).append(transcript.reading)
    for file, readings in pages.items():
        if is_xml(file):
            content = write_text(file, readings)
        else:
            assert finder is not None
            content = write(finder.segmentations[file], readings, file, image_size(file), kind)
        with _written(str(Path(output) / f"{file.stem}.xml") if Path(output).is_dir() else output) as target:
            print(content, file=target)


def _check_pages(args: argparse.Namespace) -> None:
    """Raises ValueError, before anything is read, where inputs cannot be written as XML of pages."""
    files = [file for name in args.inputs for file in input_files(name)]
    for file in files:
        if is_xml(file):
            if (found := format_of(file)) != args.format:
                raise UserError(f"{file} is written as it came: take --format {found}, not {args.format}")
        elif not is_page(file):
            raise UserError(f"--format {args.format} is for pages, and {file} is none: take --format text or json")
        elif not has_kraken():
            raise MissingExtraError(
                f"--format {args.format} of images is written by kraken, which is not installed: pip install 'gcsa-vit[kraken]'"
            )
        elif args.beams > 1:
            raise UserError(
                "a beam search does not tell where the characters are: drop --beams, or take --format text or json"
            )
    if len(files) > 1 and not Path(args.output).is_dir():
        raise UserError(f"{len(files)} pages are written as a file each: make a folder, and name it with --output")
    if len({file.stem for file in files}) < len(files):
        raise UserError(
            "two of the pages have one name, and would be written to one file: read them one after the other"
        )


def _check_kept(args: argparse.Namespace) -> None:
    """Raises ValueError where an input would be overwritten by anything but itself with its text in it."""

    def name(path: Path) -> str:
        return str(path.resolve()).casefold()  # as some file systems compare names

    files = [file for given in args.inputs for file in input_files(given)]
    inputs = set(map(name, files))
    into = Path(args.output)
    for file in files:
        target = into / f"{file.stem}.xml" if into.is_dir() else into
        in_its_place = args.format in FORMATS and name(target) == name(file)
        if name(target) in inputs and not in_its_place:
            raise UserError(f"{target} is one of the inputs, and would be overwritten: name another --output")


@contextmanager
def _written(name: str) -> Iterator[TextIO]:
    """A file to write to that replaces `name` at the end, and only if nothing went wrong; "-" is stdout."""
    if name != "-":
        with replacing(name) as part, part.open("w", encoding="utf-8") as file:
            yield file
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except OSError:  # nobody reads on, or a disk is full: Python would try again at its exit, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


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
    keep_freed_memory()
    keep_compiled_kernels()
    with user_errors():
        if args.threads is not None:
            torch.set_num_threads(args.threads)
        if args.output != "-" and not (args.format in FORMATS and Path(args.output).is_dir()):
            check_writable(args.output)
        _check_inputs(args.inputs)
        if args.format in FORMATS:
            _check_pages(args)
        if args.output != "-":
            _check_kept(args)
        if args.adapter is not None and find_spec("peft") is None:
            raise MissingExtraError("an adapter needs PEFT, which is not installed: pip install gcsa-vit[ocr]")
        chosen = device(args.device)
        model = fold(load(args.model, args.adapter, "recognition").network.to(chosen))
        orientation = args.orientation or ("any" if model.group.rotations % 4 == 0 else "upright")
        check_orientation(orientation, model.group)
        finder = _finder(model, orientation)
        sources = find_lines(args.inputs, args.any_image, finder)
        as_pages = args.format in FORMATS
        kept: list[Transcript] = []
        counted: list[tuple[int, float]] = []
        failed: list[str] = []
        text_to = "-" if as_pages else args.output
        half = torch.autocast(chosen.type, torch.bfloat16, enabled=args.precision == "bf16")
        try:
            with half, _written(text_to) as file, _progress(len(sources), file is not sys.stdout) as advance:
                for transcript in transcribe(model, sources, orientation, args.beams, args.batch_size, advance):
                    if as_pages:
                        kept.append(transcript)
                    else:
                        print(_formatted(transcript, args.format), file=file)
                    if transcript.reading is None:
                        failed.append(transcript.error)
                    else:
                        counted.append((len(transcript.reading.text), transcript.reading.confidence))
            if as_pages:
                _write_pages(kept, finder, args.format, args.output)
        except BrokenPipeError:  # the reader, such as head, has seen enough
            return 1
        if failed:
            print(f"{len(failed)} of {len(sources)} could not be read:", *failed, sep="\n  ", file=sys.stderr)
        if doubt := _doubt(counted):
            print(doubt, file=sys.stderr)
    return 1 if failed else 0
