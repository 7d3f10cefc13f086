"""Many line images and pages to text, read in batches of one size.

What is read: images of single lines, images of pages, on which lines are found first, PAGE-XML and ALTO files, whose lines are
cut from the page in the order of the file, and folders of these (where a folder holds .xml pages, its images belong to them).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gcsa._utils.errors import UserError
from gcsa.images.folders import SUFFIXES, list_images
from gcsa.images.reader import image_size
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.line_image import Line, read_line
from gcsa.tasks.recognition.pages.page_xml import list_pages, read_page
from gcsa.tasks.recognition.read_lines import UNREADABLE, read_lines
from gcsa.tasks.recognition.reading import Reading

CHUNK = 1024
"""Lines that are sorted into batches of one size, and held in memory, at a time: 20 kB each where they are of print."""
PAGE_SIDE = 400
PAGE_ASPECT = 4
"""An image of this many pixels on its short side, whose long side is below so many times that, is a page."""
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
        # JSON is UTF-8, which the name of a file need not be.
        content: dict[str, object] = {"file": os.fsencode(source.file).decode(errors="backslashreplace")}
        if source.number is not None:
            content["line"] = source.number
        if source.line is not None and source.line.polygon is not None:
            xs, ys = zip(*source.line.polygon, strict=True)
            content["box"] = [round(side) for side in (min(xs), min(ys), max(xs), max(ys))]
        if reading is None:
            return content | {"error": self.error}
        turn = (source.line.turn if source.line is not None else 0) + reading.turn
        return content | {"text": reading.text, "confidence": round(reading.confidence, 4), "turn": turn % 360}


def find_lines(
    inputs: Iterable[str | Path],
    any_image: bool = False,
    find_on: Callable[[Path], list[Line]] | None = None,
) -> list[Source]:
    """The lines of files and folders, in their order; those of a folder by name. Reads pages, not line images.

    any_image: of `read_page`; find_on: finds the lines on the image of a page, which without it is refused. A page that cannot be read is a `Source` with an error. Raises FileNotFoundError for what is not there unless it is
    called like an image or a page, and ValueError for a folder without any.
    """
    return [source for path in inputs for file in input_files(path) for source in _lines(file, any_image, find_on)]


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
    for chunk in _chunks(sources):
        yield from _transcribe_chunk(model, chunk, orientation, beams, batch_size, advance)


def _transcribe_chunk(
    model: CTCRecognizer,
    sources: list[Source],
    orientation: str,
    beams: int,
    batch_size: int,
    advance: Callable[[int], object],
) -> Iterator[Transcript]:
    found = [(source, source.line) for source in sources if source.line is not None]
    advance(len(sources) - len(found))
    inks = [partial(read_line, line, model.height) for _, line in found]
    pages = [source.file if source.number is not None else None for source, _ in found]
    read = iter(read_lines(model, inks, pages, orientation, beams, batch_size, advance))
    for source in sources:
        reading = source.error if source.line is None else next(read)
        if isinstance(reading, Reading):
            yield Transcript(source, reading)
        else:
            yield Transcript(source, error=reading if isinstance(reading, str) else _reason(reading, source.file))


def _chunks(sources: Iterable[Source]) -> Iterator[list[Source]]:
    """At least `CHUNK` lines each, whole pages."""
    chunk: list[Source] = []
    for source in sources:
        if len(chunk) >= CHUNK and (source.number is None or source.file != chunk[-1].file):
            yield chunk
            chunk = []
        chunk.append(source)
    if chunk:
        yield chunk


def input_files(path: str | Path) -> list[Path]:
    """The files to read at `path`: itself, or what a folder holds. Raises as `find_lines`."""
    path = Path(path)
    if not path.is_dir():
        if not path.exists() and path.suffix.lower() not in (*SUFFIXES, ".xml"):
            raise FileNotFoundError(f"there is no {path}: give line images, PAGE-XML or ALTO files, or folders of them")
        return [path]
    files = list_pages(path) or list_images(path, recursive=True)
    if not files:
        raise UserError(
            f"{path} holds no line images ({', '.join(SUFFIXES)}) and no PAGE-XML or ALTO files; an adapter, which is a "
            f"folder with {ADAPTER}, stands right behind the model"
        )
    return files


def _lines(file: Path, any_image: bool, find_on: Callable[[Path], list[Line]] | None) -> list[Source]:
    try:
        if is_xml(file):
            lines = read_page(file, any_image)
        elif not is_page(file):
            return [Source(file, Line(file))]
        elif find_on is None:
            raise UserError(
                f"{file} is a page, not a line: finding its lines needs kraken: pip install 'gcsa-vit[kraken]'"
            )
        else:
            lines = find_on(file)
        return [Source(file, line, number) for number, line in enumerate(lines, 1)]
    except UNREADABLE as error:  # the other files are read
        return [Source(file, error=_reason(error, file))]


def is_xml(file: Path) -> bool:
    """Whether a file is to be read as PAGE-XML or ALTO."""
    return file.suffix.lower() == ".xml"


def is_page(file: Path) -> bool:
    """Whether an image is too large both ways to be a line; one that cannot be opened is said to be so when it is read."""
    try:
        short, long = sorted(image_size(file))
    except UNREADABLE:
        return False
    return short >= PAGE_SIDE and long < PAGE_ASPECT * short


def sentence(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _reason(error: BaseException, file: Path) -> str:
    message = sentence(error)
    return message if str(file) in message else f"{file}: {message}"
