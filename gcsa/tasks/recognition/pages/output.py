"""Pages with their text as files: what can be written is checked before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gcsa._utils.errors import MissingExtraError, UserError
from gcsa.images.reader import image_size
from gcsa.tasks.recognition.pages.inputs import Transcript, is_page, is_xml
from gcsa.tasks.recognition.pages.layout import has_kraken, write
from gcsa.tasks.recognition.pages.page_xml import format_of
from gcsa.tasks.recognition.pages.text import write_text
from gcsa.tasks.recognition.reading import Reading


def check_pages(files: Sequence[Path], kind: str, output: str, beams: int) -> None:
    """Raises ValueError where `files` cannot be written as XML of `kind`, "page" or "alto"."""
    for file in files:
        if is_xml(file):
            if (found := format_of(file)) != kind:
                raise UserError(f"{file} is written as it came: take --format {found}, not {kind}")
        elif not is_page(file):
            raise UserError(f"--format {kind} is for pages, and {file} is none: take --format text or json")
        elif not has_kraken():
            raise MissingExtraError(
                f"--format {kind} of images is written by kraken, which is not installed: pip install 'gcsa-vit[kraken]'"
            )
        elif beams > 1:
            raise UserError(
                "a beam search does not tell where the characters are: drop --beams, or take --format text or json"
            )
    if len(files) > 1 and not Path(output).is_dir():
        raise UserError(f"{len(files)} pages are written as a file each: make a folder, and name it with --output")
    if len({file.stem for file in files}) < len(files):
        raise UserError(
            "two of the pages have one name, and would be written to one file: read them one after the other"
        )


def check_inputs_kept(files: Sequence[Path], output: str, as_pages: bool) -> None:
    """Raises ValueError where one of `files` would be overwritten by anything but itself with its text in it."""

    def name(path: Path) -> str:
        return str(path.resolve()).casefold()  # as some file systems compare names

    inputs = set(map(name, files))
    for file in files:
        target = target_of(file, output)
        if name(target) in inputs and not (as_pages and name(target) == name(file)):
            raise UserError(f"{target} is one of the inputs, and would be overwritten: name another --output")


def target_of(file: Path, output: str) -> Path:
    """Where the page `file` is written: `output`, or a file in it where it is a folder."""
    return Path(output) / f"{file.stem}.xml" if Path(output).is_dir() else Path(output)


def page_contents(transcripts: Iterable[Transcript], segmentations: dict[Path, Any], kind: str) -> dict[Path, str]:
    """The XML of `kind` of each page among `transcripts`; segmentations: of `PageFinder`."""
    pages: dict[Path, list[Reading | None]] = {}
    for transcript in transcripts:
        if transcript.input.line is not None:
            pages.setdefault(transcript.input.file, []).append(transcript.reading)
    return {
        file: write_text(file, readings)
        if is_xml(file)
        else write(segmentations[file], readings, file, image_size(file), kind)
        for file, readings in pages.items()
    }
