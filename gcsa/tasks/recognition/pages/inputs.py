"""What is read, as lines: images of lines, images of pages, PAGE-XML and ALTO files, and folders of these.

The lines on the image of a page are searched first; those of an XML file are cut from its image in reading order. The images in a
folder with .xml pages belong to these pages. The pages of a PDF, and of a TIFF file of several, are read one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from torch import Tensor

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, one_line
from gcsa._utils.published import ADAPTER_CONFIG
from gcsa.images.folders import SUFFIXES, list_files
from gcsa.images.pixels import naming, to_grey
from gcsa.images.reader import count_pages, image_size
from gcsa.tasks.recognition.data.line_image import Line, grey_ink, page_pixels, page_size, read_line
from gcsa.tasks.recognition.pages.page_xml import list_pages, read_page
from gcsa.tasks.recognition.pages.words import box_of, clipped, words_of
from gcsa.tasks.recognition.reading import Reading

UNREADABLE = (ValueError, OSError, MemoryError)
"""What reading a line or a page raises."""
IMAGES = (*SUFFIXES, ".pdf")
"""What is read of a folder without XML pages."""
WITHOUT_PAGES = (*(suffix for suffix in SUFFIXES if suffix not in (".tif", ".tiff")), ".xml")
"""Of files that hold one page."""
PAGE_SIDE = 400
PAGE_ASPECT = 4
"""An image of this many pixels on its short side, whose long side is below so many times that, is a page."""


class Source(NamedTuple):
    """What is read at a time: a file, or the `page`, from 1 on, of one of several `pages`."""

    file: Path
    page: int | None = None
    pages: int = 1

    @property
    def name(self) -> str:
        """For messages."""
        return str(self.file) if self.page is None else f"{self.file}, page {self.page}"

    @property
    def stem(self) -> str:
        """Of the files that are written for it."""
        return self.file.stem if self.page is None else f"{self.file.stem}-{self.page:0{len(str(self.pages))}}"


@dataclass(frozen=True)
class LineInput:
    """A line to read: `line` of `source`, with its `number` from 1 on where that is a page; or the `error` that prevents it.

    block: that the line is in, from 1 on, where it was found on the image of a page; see `in_reading_order`.
    grey: grey values of the image of a line, where it was opened already.
    """

    source: Source
    line: Line | None = None
    number: int | None = None
    error: str = ""
    block: int = 0
    grey: Array | None = field(default=None, compare=False, repr=False)

    def ink(self, height: int) -> Tensor:
        """`read_line` of the line, for a model of this height."""
        assert self.line is not None
        if self.grey is None:
            return read_line(self.line, height)
        return grey_ink(self.grey, self.line.name, height)


@dataclass(frozen=True)
class Transcript:
    """The reading of a line, its orientation that in the file; or the error that prevents it."""

    input: LineInput
    reading: Reading | None = None
    error: str = ""

    def as_dict(self, size: tuple[int, int] | None = None) -> dict[str, object]:
        """For JSON: of lines of a page also their number, their words and the boxes of both, (left, top, right, bottom) in pixels of
        its image, of which `size` is width and height."""
        # JSON is UTF-8, which the name of a file need not be.
        content: dict[str, object] = {"file": os.fsencode(self.input.source.file).decode(errors="backslashreplace")}
        if self.input.source.page is not None:
            content["page"] = self.input.source.page
        if self.input.number is not None:
            content["line"] = self.input.number
        line = self.input.line
        polygon = None if line is None else line.polygon
        if polygon is not None and size is not None:
            polygon = clipped(polygon, size)
        if polygon is not None:
            content["box"] = list(box_of(polygon))
        if self.reading is None:
            return content | {"error": self.error}
        content |= {
            "text": self.reading.text,
            "confidence": round(self.reading.confidence, 4),
            "orientation": self.reading.orientation,
        }
        if line is not None and polygon is not None:
            content["words"] = [
                {"text": word.text, "confidence": round(word.confidence, 4), "box": list(word.box)}
                for word in words_of(polygon, self.reading, line.baseline)
            ]
        return content


def find_sources(inputs: Iterable[str | Path]) -> list[Source]:
    """The files to read and those in folders, in their order; those of a folder by name; of a document of several pages each
    page. Raises as `input_files`.

    A file whose name ends as those of formats without pages is not opened.
    """
    return [source for path in inputs for file in input_files(path) for source in _sources(file)]


def _sources(file: Path) -> list[Source]:
    pages = 0 if file.suffix.lower() in WITHOUT_PAGES else count_pages(file)
    return [Source(file, page, pages) for page in range(1, pages + 1)] or [Source(file)]


def input_files(path: str | Path) -> list[Path]:
    """The files to read at `path`: itself, or those of a folder.

    Raises FileNotFoundError for a path that does not exist, and ValueError for a folder without any.
    """
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}: give line images, PAGE-XML or ALTO files, or folders of them")
        return [path]
    files = list_pages(path, recursive=True) or list_files(path, IMAGES, recursive=True)
    if not files:
        raise UserError(
            f"{path} holds no images ({', '.join(IMAGES)}) and no PAGE-XML or ALTO files; an adapter, which is a "
            f"folder with {ADAPTER_CONFIG}, stands right behind the model",
            "images.none",
        )
    return files


def images_left_out(inputs: Iterable[str | Path]) -> list[Path]:
    """The images and PDF files in folders of XML pages that none of these pages names: `input_files` leaves them out."""
    left_out: list[Path] = []
    for folder in filter(Path.is_dir, map(Path, inputs)):
        pages = list_pages(folder, recursive=True)
        stems = {page.stem for page in pages}
        images = list_files(folder, IMAGES, recursive=True) if pages else []
        others = [file for file in images if file.stem not in stems]
        for content in map(Path.read_bytes, pages if others else []):
            others = [file for file in others if os.fsencode(escape(file.name)) not in content]
        left_out += others
    return left_out


def find_lines(source: Source, find_on: Callable[[Source], list[Line]], any_image: bool = False) -> list[LineInput]:
    """The lines of a page, none where it is blank; or the image of a line.

    find_on: finds the lines on the image of a page, in any order; any_image: of `read_page`.

    A page that cannot be read is one `LineInput` with an error.
    """
    try:
        if is_xml(source.file):
            lines = read_page(source.file, any_image)
        elif (line := _as_line(source)) is not None:
            return [line]
        else:
            lines = find_on(source)
        return [LineInput(source, line, number) for number, line in enumerate(lines, 1)]
    except UNREADABLE as error:  # the other files are read
        return [LineInput(source, error=reason(error, source))]


def _as_line(source: Source) -> LineInput | None:
    """The image of a line; None for that of a page. Raises ValueError for one that cannot be read."""
    if has_page_size(*page_size(source.file, source.page)):
        return None
    pixels, orientation = page_pixels(source.file, source.page)
    with naming(source.file):
        grey = to_grey(pixels.upright(orientation))
    return LineInput(source, Line(source.file, page=source.page), grey=grey)


def is_xml(file: Path) -> bool:
    """Whether a file is to be read as PAGE-XML or ALTO."""
    return file.suffix.lower() == ".xml"


def is_page(source: Source) -> bool:
    """Whether an image has the size of a page; False for one that cannot be opened, of which reading tells the error."""
    try:
        return has_page_size(*image_size(source.file, page=source.page))
    except UNREADABLE:
        return False


def is_readable(source: Source) -> bool:
    """Whether the header of an image can be read."""
    try:
        image_size(source.file, page=source.page)
    except UNREADABLE:
        return False
    return True


def has_page_size(width: int, height: int) -> bool:
    """Whether an image is too large both ways to be a line."""
    short, long = sorted((width, height))
    return short >= PAGE_SIDE and long < PAGE_ASPECT * short


def reason(error: BaseException, source: Source) -> str:
    """The error in one line that names `source`."""
    message = one_line(error, 1000)
    if source.name in message:
        return message
    file = str(source.file)
    return message.replace(file, source.name, 1) if file in message else f"{source.name}: {message}"
