"""Where lines and their transcriptions are: folders of line images, and folders of PAGE-XML or ALTO.

A folder of lines holds `NNNNN.png` (or, of OCRopus, `NNNNN.nrm.png`) with `NNNNN.gt.txt` (one line, UTF-8) and, if splits are given, `manifest.tsv`: tab
separated, not quoted, with at least the columns split (train, val or test), file and document. Without a manifest, a
tenth of the documents each validates and tests, the same in every run; a document is a subfolder or an XML page. With
fewer than three documents, lines are held out instead.
"""

import hashlib
import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from gcsa._utils.errors import UserError
from gcsa._utils.paths import confined, existing, expanded, read_bounded
from gcsa._utils.tables import TextTable
from gcsa.images.folders import SUFFIXES, list_images
from gcsa.tasks.recognition.data.charset import normalize
from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.page_xml import list_pages, read_page

__all__ = ["SPLITS", "Line", "divide", "list_lines", "read_text"]

SPLITS = ("train", "val", "test")
COLUMNS = ("split", "file", "document")
OF_OCROPUS = (".nrm", ".bin")
"""In front of the suffix of an image; of two images of a line, the first is taken."""
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
    return [line._replace(text=read_text(line.image)) for line in _listed(folder, any_image) if line.split in splits]


def line_files(folder: Path, any_image: bool = False) -> dict[str, list[Path]]:
    """The images of each split; none of XML pages, whose image all splits share. Raises as `list_lines`."""
    if not (folder / "manifest.tsv").is_file() and list_pages(folder):
        return {}
    lines = _listed(folder, any_image)
    return {split: [line.image for line in lines if line.split == split] for split in SPLITS}


def _listed(folder: Path, any_image: bool) -> list[Line]:
    return _manifest(folder, any_image) if (folder / "manifest.tsv").is_file() else _files(folder)


def read_text(image: Path) -> str:
    """The normalised transcription beside `image`. Raises ValueError where it is missing, empty or not UTF-8."""
    path = text_file(image)
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


def text_file(image: Path) -> Path:
    """Where the transcription of an image is: NAME.gt.txt, also of NAME.nrm.png and NAME.bin.png, the grey and the black and white image
    of OCRopus."""
    path = image.with_suffix(".gt.txt")
    of_ocropus = Path(image.stem).suffix in OF_OCROPUS and not path.is_file()
    path = image.with_suffix("").with_suffix(".gt.txt") if of_ocropus else path
    return existing(path.parent, path.name) or path


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
    table = TextTable(path, read_bounded(path, MAX_MANIFEST_BYTES), "\t")
    places = table.places(COLUMNS)
    lines: dict[Path, Line] = {}
    for number, cells in table.rows:
        split, name, document = (cells[place] for place in places)
        if split not in SPLITS:
            raise UserError(
                f"{path} line {number}: unknown split {split!r:.80}, choose one of {', '.join(SPLITS)}",
                "manifest.split",
            )
        image = confined(folder, name)
        if image is None and any_image and name:
            image = existing(folder, name)
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
    images = _one_a_line(images)
    names = {path: path.relative_to(folder).as_posix() for path in images}
    by_document = len({path.parent for path in images}) >= 3
    unit = {path: path.parent.name if by_document else names[path] for path in images}
    split = divide(unit.values(), folder)
    return [Line(path, split=split[unit[path]], document=path.parent.name) for path in images]


def _one_a_line(images: Sequence[Path]) -> list[Path]:
    """Without those of OCRopus' images of a line that stand beside another one."""
    ranks = {
        path: (("", *OF_OCROPUS).index(suffix) if (suffix := Path(path.stem).suffix) in OF_OCROPUS else 0)
        for path in images
    }
    best: dict[Path, int] = {}
    for path, rank in ranks.items():
        best[text_file(path)] = min(rank, best.get(text_file(path), rank))
    return [path for path, rank in ranks.items() if rank == best[text_file(path)]]


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
