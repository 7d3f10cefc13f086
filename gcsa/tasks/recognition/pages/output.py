"""Pages and lines with their text as files: what can be written is checked before anything is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import MissingExtraError, UserError
from gcsa.images.reader import is_pdf
from gcsa.tasks.recognition.choices import ENDINGS, is_folder
from gcsa.tasks.recognition.data.line_image import page_size
from gcsa.tasks.recognition.pages.hocr import hocr
from gcsa.tasks.recognition.pages.inputs import UNREADABLE, Source, Transcript, is_page, is_readable, is_xml
from gcsa.tasks.recognition.pages.new_xml import new_xml
from gcsa.tasks.recognition.pages.page_xml import format_of
from gcsa.tasks.recognition.pages.pdf import has_ocrmypdf, searchable_pdf
from gcsa.tasks.recognition.pages.placed import placed_page
from gcsa.tasks.recognition.pages.text import write_text

XML_FORMATS = ("page", "alto")
BEAMS = "a beam search does not tell where the characters are: drop --beams, or take --format text or json"


def check_pages(sources: Sequence[Source], kind: str, output: str, beams: int) -> None:
    """Raises ValueError where `sources` cannot be written as `kind`, one of `PAGE_FORMATS`; those that cannot be read are passed
    over, of which reading tells the error."""
    if kind == "pdf":
        _check_pdf(sources, output)
    for source in sources:
        if is_xml(source.file) and kind not in XML_FORMATS:
            if beams > 1:
                raise UserError(BEAMS, "format.beams")
        elif is_xml(source.file):
            if (found := _format(source.file)) not in (kind, None):
                raise UserError(
                    f"{source.file} is written as it came: take --format {found}, not {kind}", "format.other", kind=kind
                )
        elif not is_page(source):
            if is_readable(source):
                raise UserError(
                    f"--format {kind} is for pages, and {source.name} is none: take --format text or json",
                    "format.pages",
                )
        elif beams > 1:
            raise UserError(BEAMS, "format.beams")
    if len(sources) > 1 and not is_folder(output):
        raise UserError(
            f"{len(sources)} pages are written as a file each: name a folder, as in --output FOLDER/",
            "output.needs_folder",
        )


def _check_pdf(sources: Sequence[Source], output: str) -> None:
    if not has_ocrmypdf():
        raise MissingExtraError(
            "--format pdf needs OCRmyPDF, which is not installed: pip install 'gcsa-vit[ocrmypdf]'", "ocrmypdf.missing"
        )
    if output == "-":
        raise UserError(
            "--format pdf is not for a screen: name a file or a folder, as in --output FOLDER/", "format.screen"
        )
    for source in sources:
        if is_pdf(source.file):
            raise UserError(
                f"{source.file} is a PDF, whose pages --format pdf would draw anew: ocrmypdf --plugin gcsa.integrations.ocrmypdf "
                "keeps them, and adds the text",
                "format.pdf_again",
            )


def _format(file: Path) -> str | None:
    try:
        return format_of(file)
    except MissingExtraError:
        raise
    except UNREADABLE:
        return None


def check_output(inputs: Sequence[str], sources: Sequence[Source], kind: str, output: str) -> None:
    """Raises ValueError where `output` takes no files, two `sources` would be written to one file, one of them would be overwritten
    by anything but itself with its text in it, or the next run would take what this one writes for its `inputs`."""
    as_xml, folder = kind in XML_FORMATS, Path(output)
    as_input = as_xml or kind == "pdf"
    if is_folder(output):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--output {output} is a file: name a folder", "output.is_file", output=output)
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        check_writable(there / f"x{ENDINGS[kind]}")
        owners: dict[str, Source] = {}
        for source in sources:
            other = owners.setdefault(_key(target_of(source, kind, output)), source)
            if other is not source:
                raise UserError(
                    f"{other.name} and {source.name} have one name, and would be written to one file: read them into folders of "
                    "their own",
                    "images.same_name",
                )
        if (
            as_input
            and not all(is_xml(source.file) for source in sources)
            and _key(folder) in map(_key, map(Path, inputs))
        ):
            raise UserError(
                f"--output {output} is the folder of the images, where the next run would take the {ENDINGS[kind]} files for what is "
                "to be read: name another folder",
                "output.in_images",
            )
    else:
        check_writable(output)
    files = {_key(source.file) for source in sources}
    for source in sources:
        target = target_of(source, kind, output)
        if _key(target) in files and not (as_xml and _key(target) == _key(source.file)):
            raise UserError(
                f"{target} is one of the inputs, and would be overwritten: name another --output", "output.is_input"
            )


def _key(path: Path) -> str:
    return str(path.resolve()).casefold()  # as some file systems compare names


def target_of(source: Source, kind: str, output: str) -> Path:
    """Where the text of `source` is written: `output`, or a file in it where it is a folder."""
    return Path(output) / f"{source.stem}{ENDINGS[kind]}" if is_folder(output) else Path(output)


def content_of(transcripts: Sequence[Transcript], kind: str) -> str:
    """Text or JSON: a line of output for every line, empty text for one that could not be read."""
    if kind == "json":
        size = _page_size(transcripts)
        lines = [json.dumps(transcript.as_dict(size), ensure_ascii=False) for transcript in transcripts]
    else:
        lines = [transcript.reading.text if transcript.reading is not None else "" for transcript in transcripts]
    return "".join(f"{line}\n" for line in lines)


def _page_size(transcripts: Sequence[Transcript]) -> tuple[int, int] | None:
    """Width and height of the image that lines were cut from; None for a line by itself, and where it cannot be read."""
    found = [transcript.input.line for transcript in transcripts]
    line = next((line for line in found if line is not None and line.polygon is not None), None)
    try:
        return None if line is None else page_size(line.image, line.page)
    except UNREADABLE:
        return None


def page_content(
    source: Source, transcripts: Sequence[Transcript], kind: str, weights: str, any_image: bool
) -> str | bytes:
    """The file of `kind`, one of `PAGE_FORMATS`, of a page that was read with `weights`; any_image: of `read_page`.

    Raises ValueError where the page cannot be written.
    """
    if kind in ("hocr", "pdf"):
        page = placed_page(source, transcripts, any_image)
        return hocr(page, weights) if kind == "hocr" else searchable_pdf(page, weights)
    if is_xml(source.file):
        readings = [transcript.reading for transcript in transcripts]
        return write_text(source.file, readings, weights) + "\n"
    return new_xml(source, transcripts, kind, weights) + "\n"
