"""A table of the pages that were read, a row each, for a spreadsheet: which pages and lines somebody should look at."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TextIO

from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import UserError
from gcsa.tasks.recognition.pages.inputs import Source, Transcript
from gcsa.tasks.recognition.reading import LOW_CONFIDENCE, mean_confidence, text_orientation

COLUMNS = (
    "file",
    "page",
    "orientation",
    "confidence",
    "lines",
    "low_confidence",
    "low_confidence_lines",
    "seconds",
    "error",
)
"""low_confidence: how many lines have a confidence below `LOW_CONFIDENCE`; low_confidence_lines: their numbers, from 1 on; seconds:
of a page."""


def check_report(path: str, sources: Collection[Source], written: Collection[Path] = ()) -> None:
    """Raises UserError where `path` takes no file, is one that is read or `written`, or holds anything but a report."""
    target = Path(path).resolve()
    check_writable(target if target.parent.is_dir() else next(p for p in target.parents if p.exists()) / target.name)
    if target in {source.file.resolve() for source in sources}:
        raise UserError(
            f"--report {path} is one of the inputs, and would be overwritten: name another file", "report.is_input"
        )
    if target in {file.resolve() for file in written}:
        raise UserError(f"--report {path} is where --output writes text: name another file", "report.is_output")
    if target.is_file() and target.stat().st_size and not _rows(target):
        raise UserError(f"--report {path} is there already, and is no report: name another file", "report.other_file")


class Report:
    """Writes rows to `stream` as pages are read, each at once."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.rows = stream, csv.writer(stream)

    def add(self, source: Source, transcripts: Sequence[Transcript], seconds: float, error: str = "") -> None:
        """The row of a page, or of a line by itself; error: why it could not be written."""
        readings = [transcript.reading for transcript in transcripts if transcript.reading is not None]
        errors = [transcript.error for transcript in transcripts if transcript.reading is None] + [error] * bool(error)
        numbered = [
            t.input.number or 1 for t in transcripts if t.reading is not None and t.reading.confidence < LOW_CONFIDENCE
        ]
        confidence = mean_confidence((len(reading.text), reading.confidence) for reading in readings)
        by_itself = any(
            transcript.input.number is None and transcript.reading is not None for transcript in transcripts
        )
        self.rows.writerow(
            [
                *_key(source),
                text_orientation(readings) if readings else "",
                f"{confidence:.4f}" if readings else "",
                len(readings),
                len(numbered),
                " ".join(map(str, numbered)),
                "" if by_itself else f"{seconds:.1f}",  # lines by themselves are read many at a time
                "; ".join(errors),
            ]
        )
        self.stream.flush()


def start_report(path: str, left_out: Collection[Source]) -> TextIO:
    """A report with the rows that an earlier one has of the pages `left_out`, which are not read again, open for more rows."""
    kept = {_key(source) for source in left_out}
    target = Path(path)
    older = _rows(target) if target.is_file() else []
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part, part.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *(row for row in older[1:] if tuple(row[:2]) in kept)])
    return target.open("a", encoding="utf-8", newline="")


def _key(source: Source) -> tuple[str, str]:
    """File and page, in UTF-8, which the name of a file need not be."""
    name = os.fsencode(source.file).decode(errors="backslashreplace")
    return name, "" if source.page is None else str(source.page)


def _rows(path: Path) -> list[list[str]]:
    """Those of a report, its header included; none of any other file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error):
        return []
    return rows if rows and tuple(rows[0]) == COLUMNS else []
