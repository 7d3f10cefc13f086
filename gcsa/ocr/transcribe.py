"""Many line images and pages to text, read in batches of one size.

What is read: images of single lines, PAGE-XML and ALTO files, whose lines are cut from the page in the order of the
file, and folders of either (where a folder holds pages, its images belong to them).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gcsa.data.images import SUFFIXES
from gcsa.ocr.data.line_image import Line, fit_line, read_line
from gcsa.ocr.data.page_xml import list_pages, read_page
from gcsa.ocr.reading import Reading
from gcsa.ocr.recognizers.ctc import CTCRecognizer

CHUNK = 1024
"""Lines that are sorted into batches of one size, and held in memory, at a time: 20 kB each where they are of print."""
MOST_WORKERS = 8
"""Batches that are read at a time on a CPU, each of which takes memory of its own: 16 printed lines some 100 MB."""
ADAPTER = "adapter_config.json"
UNREADABLE = (ValueError, OSError, MemoryError)
"""What reading a line or a page raises."""


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
        # JSON is UTF-8, which the name of a file need not be.
        content: dict[str, object] = {"file": os.fsencode(source.file).decode(errors="backslashreplace")}
        if source.line is not None and source.line.polygon is not None:
            xs, ys = zip(*source.line.polygon, strict=True)
            content |= {"line": source.number, "box": [round(side) for side in (min(xs), min(ys), max(xs), max(ys))]}
        if reading is None:
            return content | {"error": self.error}
        return content | {"text": reading.text, "confidence": round(reading.confidence, 4), "turn": reading.turn}


def find_lines(inputs: Iterable[str | Path], any_image: bool = False) -> list[Source]:
    """The lines of files and folders, in their order; those of a folder by name. Reads pages, not line images.

    any_image: of `read_page`. A page that cannot be read is a `Source` with an error. Raises FileNotFoundError for what is not there unless it is
    called like an image or a page, and ValueError for a folder without any.
    """
    return [source for path in map(Path, inputs) for file in _files(path) for source in _lines(file, any_image)]


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
    autocast = torch.get_autocast_dtype(device.type), torch.is_autocast_enabled(device.type)  # of this thread

    def read(batch: list[tuple[int, Tensor]]) -> list[Reading]:
        images = torch.stack([image for _, image in batch]).to(device).float().div_(255)
        with torch.autocast(device.type, *autocast):
            return model.read(images, orientation, beams)

    buckets: dict[torch.Size, list[tuple[int, Tensor]]] = defaultdict(list)
    for i, source in enumerate(sources):
        if source.line is None:
            continue
        try:
            image = _image(source.line, model, orientation == "upright")
        except UNREADABLE as error:  # the other lines are read
            transcripts[i] = Transcript(source, error=_reason(error, source.file))
        else:
            buckets[image.shape].append((i, image))
    advance(len(sources) - sum(map(len, buckets.values())))
    batches = [
        bucket[start : start + batch_size] for bucket in buckets.values() for start in range(0, len(bucket), batch_size)
    ]
    with _side_by_side(device, len(batches)) as run:
        for batch, readings in zip(batches, run(read, batches), strict=True):
            for (i, _), reading in zip(batch, readings, strict=True):
                transcripts[i] = Transcript(sources[i], reading)
            advance(len(batch))
    return transcripts


@contextmanager
def _side_by_side(device: torch.device, batches: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """`map`, or on a CPU one that reads several batches at a time. A batch of lines is so small that torch's threads mostly
    wait for one another; where each has a batch of its own, they do not."""
    threads = torch.get_num_threads()
    workers = min(threads, MOST_WORKERS, batches)
    if device.type != "cpu" or workers <= 1:
        yield map
        return
    torch.set_num_threads(-(-threads // workers))
    try:
        with ThreadPoolExecutor(workers) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(threads)


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
        file
        for pattern in ("*", "*/*")
        for file in sorted(path.glob(pattern))
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
    ]
    if not files:
        raise ValueError(
            f"{path} holds no line images ({', '.join(SUFFIXES)}) and no PAGE-XML or ALTO files; an adapter, which is a "
            f"folder with {ADAPTER}, stands right behind the model"
        )
    return files


def _lines(file: Path, any_image: bool) -> list[Source]:
    if file.suffix.lower() != ".xml":
        return [Source(file, Line(file))]
    try:
        return [Source(file, line, number) for number, line in enumerate(read_page(file, any_image), 1)]
    except UNREADABLE as error:  # as for images
        return [Source(file, error=_reason(error, file))]


def sentence(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _reason(error: BaseException, file: Path) -> str:
    message = sentence(error)
    return message if str(file) in message else f"{file}: {message}"
