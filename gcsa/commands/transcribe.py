"""Read text lines: `transcribe.py weights/gcsa_ocr_tiny.fr17 page.xml lines/ > text.txt`.

A model is a .ckpt of train.py or a folder of weights, an adapter the folder that PEFT wrote. Text comes without file
names, as from kraken and tesseract, one line of output for every line of input, empty where that could not be read;
JSON comes as one object a line, with "error" instead of "text" there. All output is UTF-8.
Exit codes: 0, all read; 1, something could not be read, listed on stderr; 2, wrong arguments, before anything is read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from gcsa.ocr.load import load_recognizer
from gcsa.ocr.reading import ORIENTATIONS, check_orientation
from gcsa.ocr.transcribe import ADAPTER, Transcript, find_lines, sentence, transcribe


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="transcribe.py",
        usage="%(prog)s [options] MODEL [ADAPTER] IMAGES...",
        description="Reads text lines.",
        epilog="Exit code 1 if something could not be read: it is listed on stderr, everything else is transcribed.",
    )
    parser.add_argument("model", metavar="MODEL", help=".ckpt of train.py, or folder of weights")
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
    parser.add_argument("--beams", type=_count, default=1, help="of a beam search (default 1: greedy, faster)")
    parser.add_argument("--batch-size", type=_count, default=16, metavar="LINES", help="read together (default 16)")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: an object a line, with confidence and turn"
    )
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="written whole or not at all; default - is stdout"
    )
    parser.add_argument(
        "--any-image", action="store_true", help="PAGE and ALTO may name images outside of their folder"
    )
    parser.add_argument("--threads", type=_count, help="of the CPU (default: one a core)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default %(default)s")
    args = parser.parse_intermixed_args(argv)
    if args.adapter is None and (Path(args.inputs[0]) / ADAPTER).is_file():
        args.adapter = args.inputs.pop(0)
        if not args.inputs:
            parser.error("nothing to read: give images behind the adapter")
    return args


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def _device(name: str) -> torch.device:
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name} cannot be used here: {sentence(error)[:100]}") from error


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
    if name == "-":
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    target = Path(name).resolve()
    if target.exists() and not target.is_file():
        raise ValueError(f"--output {name} is not a file: use another, or - for stdout")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} for --output {name}")
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit(2) for wrong arguments."""
    args = _arguments(argv)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    try:
        model = load_recognizer(args.model, args.adapter).to(_device(args.device))
        orientation = args.orientation or ("any" if model.group.rotations % 4 == 0 else "upright")
        check_orientation(orientation, model.group)
        sources = find_lines(args.inputs, args.any_image)
        with _written(args.output) as file, _progress(len(sources), shown=file is not sys.stdout) as advance:
            failed = []
            for transcript in transcribe(model, sources, orientation, args.beams, args.batch_size, advance):
                print(_formatted(transcript, args.format), file=file)
                failed += [transcript.error] if transcript.reading is None else []
            file.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {sentence(error)}", file=sys.stderr)
        return 2
    if failed:
        print(f"{len(failed)} of {len(sources)} could not be read:", *failed, sep="\n  ", file=sys.stderr)
    return 1 if failed else 0
