"""Read text lines: `transcribe.py weights/gcsa_ocr_tiny.fr17 page.xml lines/ > text.txt`.

A model is a .ckpt of train.py, a folder of weights or the name of published ones, an adapter the folder that PEFT wrote. Text comes without file
names, as from kraken and tesseract, one line of output for every line of input, empty where that could not be read;
JSON comes as one object a line, with "error" instead of "text" there. All output is UTF-8.
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

from gcsa.commands.arguments import count, device
from gcsa.commands.errors import Parser, user_errors
from gcsa.commands.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.export import fold
from gcsa.files import check_writable, replacing
from gcsa.ocr.load import load_recognizer
from gcsa.ocr.reading import ORIENTATIONS, check_orientation
from gcsa.ocr.transcribe import ADAPTER, Transcript, find_lines, transcribe
from gcsa.program import program
from gcsa.published import published


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog=program("transcribe"),
        usage="%(prog)s [options] MODEL [ADAPTER] IMAGES...",
        description="Reads text lines.",
        epilog="Exit code 1 if something could not be read: it is listed on stderr, everything else is transcribed.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help=".ckpt of train.py, folder of weights, or the name of published ones"
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="IMAGES",
        help=f"line images, PAGE-XML or ALTO files, folders of them; before them may stand a folder with {ADAPTER}",
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
        "--format", choices=("text", "json"), default="text", help="json: an object a line, with confidence and turn"
    )
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="written whole or not at all; default - is stdout"
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
            raise ValueError(
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
        if args.output != "-":
            check_writable(args.output)
        _check_inputs(args.inputs)
        if args.adapter is not None and find_spec("peft") is None:
            raise ImportError("an adapter needs PEFT, which is not installed: pip install gcsa[ocr]")
        chosen = device(args.device)
        model = fold(load_recognizer(args.model, args.adapter).to(chosen))
        orientation = args.orientation or ("any" if model.group.rotations % 4 == 0 else "upright")
        check_orientation(orientation, model.group)
        sources = find_lines(args.inputs, args.any_image)
        failed: list[str] = []
        half = torch.autocast(chosen.type, torch.bfloat16, enabled=args.precision == "bf16")
        try:
            with half, _written(args.output) as file, _progress(len(sources), file is not sys.stdout) as advance:
                for transcript in transcribe(model, sources, orientation, args.beams, args.batch_size, advance):
                    print(_formatted(transcript, args.format), file=file)
                    failed += [transcript.error] if transcript.reading is None else []
        except BrokenPipeError:  # the reader, such as head, has seen enough
            return 1
        if failed:
            print(f"{len(failed)} of {len(sources)} could not be read:", *failed, sep="\n  ", file=sys.stderr)
    return 1 if failed else 0
