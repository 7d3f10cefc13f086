"""What is read, as lines: images of lines, images of pages, PAGE-XML and ALTO files, and folders of these.

The lines on the image of a page are searched first; those of an XML file are cut from its image in reading order. The images in a
folder with .xml pages belong to these pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.published import ADAPTER_CONFIG
from gcsa.images.folders import SUFFIXES, list_images
from gcsa.images.reader import image_size
from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.page_xml import list_pages, read_page
from gcsa.tasks.recognition.reading import Reading

UNREADABLE = (ValueError, OSError, MemoryError)
"""What reading a line or a page raises."""
PAGE_SIDE = 400
PAGE_ASPECT = 4
"""An image of this many pixels on its short side, whose long side is below so many times that, is a page."""


@dataclass(frozen=True)
class LineInput:
    """A line to read: `line` of `file`, with its `number` from 1 on where that is a page; or the `error` that prevents it."""

    file: Path
    line: Line | None = None
    number: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Transcript:
    """The reading of a line, its orientation that in the file; or the error that prevents it."""

    input: LineInput
    reading: Reading | None = None
    error: str = ""

    def as_dict(self) -> dict[str, object]:
        """For JSON: of lines of a page also their number and box, (left, top, right, bottom) in pixels of its image."""
        # JSON is UTF-8, which the name of a file need not be.
        content: dict[str, object] = {"file": os.fsencode(self.input.file).decode(errors="backslashreplace")}
        if self.input.number is not None:
            content["line"] = self.input.number
        if self.input.line is not None and self.input.line.polygon is not None:
            xs, ys = zip(*self.input.line.polygon, strict=True)
            content["box"] = [round(side) for side in (min(xs), min(ys), max(xs), max(ys))]
        if self.reading is None:
            return content | {"error": self.error}
        confidence, orientation = round(self.reading.confidence, 4), self.reading.orientation
        return content | {"text": self.reading.text, "confidence": confidence, "orientation": orientation}


def find_lines(
    inputs: Iterable[str | Path], any_image: bool = False, find_on: Callable[[Path], list[Line]] | None = None
) -> list[LineInput]:
    """The lines of files and folders, in their order; those of a folder by name. Reads pages, but no images of lines.

    any_image: of `read_page`; find_on: finds the lines on the image of a page, which is refused without it.

    A page that cannot be read is a `LineInput` with an error. Raises as `input_files`.
    """
    return [line for path in inputs for file in input_files(path) for line in file_lines(file, any_image, find_on)]


def input_files(path: str | Path) -> list[Path]:
    """The files to read at `path`: itself, or those of a folder.

    Raises FileNotFoundError for a path that does not exist, and ValueError for a folder without any.
    """
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}: give line images, PAGE-XML or ALTO files, or folders of them")
        return [path]
    files = list_pages(path) or list_images(path, recursive=True)
    if not files:
        raise UserError(
            f"{path} holds no line images ({', '.join(SUFFIXES)}) and no PAGE-XML or ALTO files; an adapter, which is a "
            f"folder with {ADAPTER_CONFIG}, stands right behind the model"
        )
    return files


def file_lines(file: Path, any_image: bool, find_on: Callable[[Path], list[Line]] | None) -> list[LineInput]:
    """The lines of one file; see `find_lines`."""
    try:
        if is_xml(file):
            lines = read_page(file, any_image)
        elif not is_page(file):
            return [LineInput(file, Line(file))]
        elif find_on is None:
            raise UserError(
                f"{file} is a page, not a line: finding its lines needs kraken: pip install 'gcsa-vit[kraken]'"
            )
        else:
            lines = find_on(file)
        return [LineInput(file, line, number) for number, line in enumerate(lines, 1)]
    except UNREADABLE as error:  # the other files are read
        return [LineInput(file, error=reason(error, file))]


def is_xml(file: Path) -> bool:
    """Whether a file is to be read as PAGE-XML or ALTO."""
    return file.suffix.lower() == ".xml"


def is_page(file: Path) -> bool:
    """Whether an image has the size of a page; False for one that cannot be opened, of which reading tells the error."""
    try:
        return has_page_size(*image_size(file))
    except UNREADABLE:
        return False


def has_page_size(width: int, height: int) -> bool:
    """Whether an image is too large both ways to be a line."""
    short, long = sorted((width, height))
    return short >= PAGE_SIDE and long < PAGE_ASPECT * short


def reason(error: BaseException, file: Path) -> str:
    """The error in one line that names `file`."""
    message = one_line(error, 1000)
    return message if str(file) in message else f"{file}: {message}"
