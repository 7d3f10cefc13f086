"""Many line images and pages to text: `python transcribe.py weights/gcsa_ocr_tiny.fr17 page.xml lines/ > text.txt`.

A model is a .ckpt of train.py or a folder of weights, an adapter the folder that PEFT wrote. What is read: images of
single lines, PAGE-XML and ALTO files, whose lines are cut from the page in the order of the file, and folders of either
(where a folder holds pages, its images belong to them). Text comes without file names, as from kraken and tesseract, one
line of output for every line of input, empty where that could not be read; JSON comes as one object a line, with
"error" instead of "text" there. All output is UTF-8.
Exit codes: 0, all read; 1, something could not be read, listed on stderr; 2, wrong arguments, before anything is read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TextIO

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor

from gcsa.ocr.line_image import SUFFIXES, Line, fit_line, read_line
from gcsa.ocr.load import load_recognizer
from gcsa.ocr.page_xml import list_pages, read_page
from gcsa.ocr.reading import ORIENTATIONS, Reading, check_orientation
from gcsa.ocr.recognizer import CTCRecognizer

CHUNK = 1024
"""Lines that are sorted into batches of one size, and held in memory, at a time: 20 kB each where they are of print."""
ADAPTER = "adapter_config.json"


@dataclass(frozen=True)
class Source:
    """Where a line is: `line` of `file`, the `number`th on it, from 1, where that is a page; or why there is none."""

    file: Path
    line: Line | None = None
    number: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Transcript:
    """What a line says, or why it could not be read."""

    source: Source
    reading: Reading | None = None
    error: str = ""

    def as_dict(self) -> dict[str, object]:
        """For JSON: of lines of a page also their number and box, (left, top, right, bottom) in pixels of its image."""
        source, reading = self.source, self.reading
        content: dict[str, object] = {"file": str(source.file)}
        if source.line is not None and source.line.polygon is not None:
            xs, ys = zip(*source.line.polygon, strict=True)
            content |= {"line": source.number, "box": [round(side) for side in (min(xs), min(ys), max(xs), max(ys))]}
        if reading is None:
            return content | {"error": self.error}
        return content | {"text": reading.text, "confidence": round(reading.confidence, 4), "turn": reading.turn}


def find_lines(inputs: Iterable[str | Path]) -> list[Source]:
    """The lines of files and folders, in their order; those of a folder by name. Reads pages, not line images.

    A page that cannot be read is a `Source` with an error. Raises FileNotFoundError for what is not there unless it is
    called like an image or a page, and ValueError for a folder without any.
    """
    return [source for path in map(Path, inputs) for file in _files(path) for source in _lines(file)]


def transcribe(
    model: CTCRecognizer,
    sources: Iterable[Source],
    orientation: str = "upright",
    beams: int = 1,
    batch_size: int = 16,
    advance: Callable[[int], object] = lambda count: None,
) -> Iterator[Transcript]:
    """One transcript for each of `sources`, in their order. A line reads the same whatever is read with it.

    orientation, beams: of `CTCRecognizer.read`, whose ValueErrors are raised; batch_size: lines of one size that are
    read together; advance: called with the number of lines that are done.
    """
    remaining = iter(sources)
    while chunk := list(islice(remaining, CHUNK)):
        yield from _transcribe_chunk(model, chunk, orientation, beams, batch_size, advance)


def _transcribe_chunk(
    model: CTCRecognizer,
    sources: list[Source],
    orientation: str,
    beams: int,
    batch_size: int,
    advance: Callable[[int], object],
) -> list[Transcript]:
    device = next(model.parameters()).device
    transcripts = [Transcript(source, error=source.error) for source in sources]
    buckets: dict[torch.Size, list[tuple[int, Tensor]]] = defaultdict(list)
    for i, source in enumerate(sources):
        if source.line is None:
            continue
        try:
            image = _image(source.line, model, orientation == "upright")
        except Exception as error:  # whatever an odd file makes a decoder raise, the other lines are read
            transcripts[i] = Transcript(source, error=_reason(error, source.file))
        else:
            buckets[image.shape].append((i, image))
    advance(len(sources) - sum(map(len, buckets.values())))
    for bucket in buckets.values():
        for start in range(0, len(bucket), batch_size):
            rows, images = zip(*bucket[start : start + batch_size], strict=True)
            batch = torch.stack(images).to(device).float().div_(255)
            for i, reading in zip(rows, model.read(batch, orientation, beams), strict=True):
                transcripts[i] = Transcript(sources[i], reading)
            advance(len(rows))
    return transcripts


def _image(line: Line, model: CTCRecognizer, upright: bool) -> Tensor:
    """As the training data has it: uint8 (1, height, W), or (1, W, height) where a turned line stays turned."""
    ink = fit_line(read_line(line, model.height), model.height, model.stride, upright)
    return ink.mul(255).round_().to(torch.uint8)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists() and path.suffix.lower() not in (*SUFFIXES, ".xml"):
            raise FileNotFoundError(f"there is no {path}: give line images, PAGE-XML or ALTO files, or folders of them")
        return [path]
    files = list_pages(path) or [
        file for pattern in ("*", "*/*") for file in sorted(path.glob(pattern)) if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise ValueError(
            f"{path} holds no line images ({', '.join(SUFFIXES)}) and no PAGE-XML or ALTO files; an adapter, which is a "
            f"folder with {ADAPTER}, stands right behind the model"
        )
    return files


def _lines(file: Path) -> list[Source]:
    if file.suffix.lower() != ".xml":
        return [Source(file, Line(file))]
    try:
        return [Source(file, line, number) for number, line in enumerate(read_page(file), 1)]
    except Exception as error:  # as for images
        return [Source(file, error=_reason(error, file))]


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _reason(error: BaseException, file: Path) -> str:
    message = _sentence(error)
    return message if str(file) in message else f"{file}: {message}"


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
        raise ValueError(f"--device {name} cannot be used here: {_sentence(error)[:100]}") from error


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
        sources = find_lines(args.inputs)
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
        print(f"error: {_sentence(error)}", file=sys.stderr)
        return 2
    if failed:
        print(f"{len(failed)} of {len(sources)} could not be read:", *failed, sep="\n  ", file=sys.stderr)
    return 1 if failed else 0
