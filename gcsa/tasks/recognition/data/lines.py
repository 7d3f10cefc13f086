"""Where lines and their transcriptions are: folders of line images, and folders of PAGE-XML or ALTO.

A folder of lines holds `NNNNN.png` with `NNNNN.gt.txt` (one line, UTF-8) and, if splits are given, `manifest.tsv`: tab
separated, not quoted, with at least the columns split (train, val or test), file and document. Without a manifest, a
tenth of the documents each validates and tests, the same in every run; a document is a subfolder or an XML page. With
fewer than three documents, lines are held out instead.
"""

import csv
import hashlib
import logging
from collections.abc import Collection, Iterable
from io import StringIO
from pathlib import Path

from gcsa._utils.errors import UserError
from gcsa._utils.paths import confined, expanded, read_bounded
from gcsa.images.folders import SUFFIXES, list_images
from gcsa.tasks.recognition.data.charset import normalize
from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.page_xml import list_pages, read_page

__all__ = ["SPLITS", "Line", "divide", "list_lines", "read_text"]

SPLITS = ("train", "val", "test")
COLUMNS = ("split", "file", "document")
MAX_TEXT_BYTES = 1 << 16
"""Of the transcription of a line."""
MAX_MANIFEST_BYTES = 1 << 28

log = logging.getLogger(__name__)


def list_lines(folder: str | Path, splits: Collection[str] = SPLITS, any_image: bool = False) -> list[Line]:
    """The lines of `splits` with their normalised texts; transcriptions of other splits are not read.

    The text is that of the `.gt.txt`, whatever a manifest says. Lines of XML pages without a transcription, or without
    a polygon that can be cut out, are left out, and their number is logged. With `any_image`, manifests and pages may
    name images outside of the folder.

    Raises:
        ValueError: a file that is missing, empty, not UTF-8 or not what it should be; too few lines to be split.
        FileNotFoundError: no such folder.
    """
    folder = expanded(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: it must hold line images with .gt.txt files, or .xml pages")
    if not (folder / "manifest.tsv").is_file() and (pages := list_pages(folder)):
        return _page_lines(folder, pages, splits, any_image)
    lines = _manifest(folder, any_image) if (folder / "manifest.tsv").is_file() else _files(folder)
    return [line._replace(text=read_text(line.image)) for line in lines if line.split in splits]


def read_text(image: Path) -> str:
    """The normalised transcription beside `image`. Raises ValueError where it is missing, empty or not UTF-8."""
    path = image.with_suffix(".gt.txt")
    try:
        text = normalize(read_bounded(path, MAX_TEXT_BYTES).decode("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{image} has no transcription: add {path.name} beside it, or remove the image", "lines.no_text"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}): convert it", "lines.not_utf8") from error
    if not text:
        raise UserError(
            f"{path} is empty: write the text of the line into it, or remove it and {image.name}", "lines.empty_text"
        )
    return text


def divide(names: Iterable[str], source: object) -> dict[str, str]:
    """The split of every name: a tenth each, at least one, tests and validates. Depends on nothing but the names.

    Raises:
        ValueError: fewer than three names.
    """
    shuffled = sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(shuffled) < 3:
        raise UserError(
            f"{source} holds {len(shuffled)} lines with text: three are the least that can be split", "lines.too_few"
        )
    count = max(1, round(len(shuffled) / 10))
    return {name: "test" if i < count else "val" if i < 2 * count else "train" for i, name in enumerate(shuffled)}


def _manifest(folder: Path, any_image: bool) -> list[Line]:
    path = folder / "manifest.tsv"
    try:
        table = StringIO(read_bounded(path, MAX_MANIFEST_BYTES).decode("utf-8-sig"), newline="")
        reader = csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a table in UTF-8 ({error})", "manifest.unreadable") from error
    if absent := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
        raise UserError(
            f"{path} has no column {absent[0]!r}: it needs {', '.join(COLUMNS)}, separated by tabs", "manifest.column"
        )
    lines: dict[Path, Line] = {}
    for number, row in enumerate(rows, 2):
        split, name, document = (row[column] or "" for column in COLUMNS)
        if split not in SPLITS:
            raise UserError(
                f"{path} line {number}: unknown split {split!r:.80}, choose one of {', '.join(SPLITS)}",
                "manifest.split",
            )
        image = confined(folder, name)
        if image is None and any_image and name and (folder / name).is_file():
            image = folder / name
        if image is None:
            raise UserError(
                f"{path} line {number} names {name!r:.200}, which is not in the folder: remove the row",
                "manifest.not_there",
            )
        if image in lines:
            raise UserError(
                f"{path} line {number} names {name} a second time: a line belongs to one split", "manifest.twice"
            )
        lines[image] = Line(image, split=split, document=document)
    return list(lines.values())


def _files(folder: Path) -> list[Line]:
    images = list_images(folder, recursive=True)
    if not images:
        raise UserError(
            f"{folder} holds no line images ({', '.join(SUFFIXES)}) and no PAGE-XML or ALTO files", "lines.none"
        )
    names = {path: path.relative_to(folder).as_posix() for path in images}
    by_document = len({path.parent for path in images}) >= 3
    unit = {path: path.parent.name if by_document else names[path] for path in images}
    split = divide(unit.values(), folder)
    return [Line(path, split=split[unit[path]], document=path.parent.name) for path in images]


def _page_lines(folder: Path, pages: list[Path], splits: Collection[str], any_image: bool) -> list[Line]:
    by_page = len(pages) >= 3
    if by_page:
        split = divide((page.name for page in pages), folder)
        pages = [page for page in pages if split[page.name] in splits]
    lines = [(page.name, line) for page in pages for line in read_page(page, any_image)]
    transcribed = [(page, line) for page, line in lines if line.text]
    if left_out := len(lines) - len(transcribed):
        log.warning(
            "%s: %d of %d lines have no transcription, or no usable polygon, and are left out",
            folder,
            left_out,
            len(lines),
        )
    if not by_page:
        names = [f"{page} {number}" for number, (page, _) in enumerate(transcribed)]
        split = divide(names, folder)
        return [
            line._replace(split=split[name])
            for name, (_, line) in zip(names, transcribed, strict=True)
            if split[name] in splits
        ]
    return [line._replace(split=split[page]) for page, line in transcribed]
