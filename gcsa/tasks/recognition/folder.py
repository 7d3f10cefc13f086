"""Many pages and lines to text: into one stream, or a file for each, which is written as soon as it is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from gcsa import batch
from gcsa._utils.atomic import replacing
from gcsa._utils.errors import visible
from gcsa.tasks.recognition.choices import PAGE_FORMATS, is_folder
from gcsa.tasks.recognition.pages.forms import to_form
from gcsa.tasks.recognition.pages.inputs import UNREADABLE, LineInput, Source, Transcript, find_lines, reason
from gcsa.tasks.recognition.pages.layout import PageFinder, has_kraken
from gcsa.tasks.recognition.pages.output import content_of, page_content, target_of
from gcsa.tasks.recognition.pages.report import Report
from gcsa.tasks.recognition.predict import (
    RecognitionPredictor,
    low_confidence_pages,
    low_confidence_warning,
    page_confidence,
)
from gcsa.tasks.recognition.reading import LOW_CONFIDENCE, Reading


@dataclass(frozen=True)
class Wanted:
    """How pages and lines are read, and what is written.

    Attributes:
        orientation, beams, batch_size: of `RecognitionPredictor.predict`.
        format: of `gcsa.tasks.recognition.choices.FORMATS`.
        form: of `to_form`.
        output: the file or folder, where the text does not go into a stream.
        weights: their name, which XML says.
        any_image: of `find_lines`.
    """

    orientation: str
    beams: int
    batch_size: int
    format: str
    form: str | None
    output: str
    weights: str
    any_image: bool


def transcribe_all(
    predictor: RecognitionPredictor,
    sources: Sequence[Source],
    wanted: Wanted,
    stream: TextIO | None = None,
    report: Report | None = None,
    shown: bool = True,
) -> batch.Outcome:
    """Reads `sources`, and writes each to `stream` or, without it, to a file of its own, as soon as it is read.

    Says on stderr what could not be read or written, and what is empty or read with a low confidence. A line that cannot be read counts by itself. shown: of
    `batch.run`.
    """
    finder = PageFinder(predictor.page_orientation if wanted.orientation == "any" else None) if has_kraken() else None
    told = _Told(wanted)

    def read(these: Sequence[Source], pace: batch.Pace) -> Iterator[list[Transcript]]:
        ahead = 0

        def lines_of(source: Source) -> list[LineInput]:
            pace.show(source.name)
            return find_lines(source, wanted.any_image, finder)

        def advance(count: int) -> None:
            nonlocal ahead
            ahead += count
            pace.ahead(ahead - pace.number)

        found = map(lines_of, these)
        yield from predictor.transcribe(found, wanted.orientation, wanted.beams, wanted.batch_size, advance)

    def finish(source: Source, as_read: list[Transcript], seconds: float) -> None:
        transcripts = to_form(as_read, wanted.form)
        readings = [transcript.reading for transcript in transcripts if transcript.reading is not None]
        for transcript in transcripts:
            if transcript.reading is None:
                told.outcome.fail(transcript.error)
        told.outcome.total += max(1, len(transcripts))
        unwritten, is_line = "", stream is not None and wanted.format not in PAGE_FORMATS
        if readings or not transcripts or is_line:  # of which every one has its line of output
            try:
                content = _content(source, transcripts, finder, wanted)
            except UNREADABLE as error:  # the other pages are written
                unwritten = reason(error, source)
                told.outcome.fail(unwritten)
            else:
                _write(content, source, wanted, stream)
        if report is not None:
            report.add(source, transcripts, seconds, unwritten)
        if not unwritten:
            told.add(source, transcripts, readings)

    outcome = batch.run(sources, read, finish, name=lambda source: source.name, shown=shown)
    told.outcome.failed += outcome.failed
    told.tell(len(sources))
    return told.outcome


class _Told:
    """What is said of a run behind it."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted, self.outcome = wanted, batch.Outcome()
        self.empty: list[str] = []
        self.lines: list[tuple[int, float]] = []
        self.pages: dict[str, float] = {}

    def add(self, source: Source, transcripts: Sequence[Transcript], readings: Sequence[Reading]) -> None:
        """Takes a page or a line into account; says at once where most of a page may be wrong."""
        if not transcripts:
            self.empty.append(source.name)
        elif transcripts[0].input.number is None:
            self.lines += [(len(reading.text), reading.confidence) for reading in readings]
        elif (confidence := page_confidence(readings)) >= LOW_CONFIDENCE:
            self.pages[source.name] = confidence
        else:
            print(
                f"{visible(source.name)} was read with a confidence of {confidence:.2f}, below {LOW_CONFIDENCE}: most of it may be wrong. "
                f"Try --orientation {'upright' if self.wanted.orientation == 'any' else 'any'}, or weights for this script and type",
                file=sys.stderr,
            )

    def tell(self, count: int) -> None:
        if self.empty:
            names = visible(", ".join(self.empty))
            print(
                f"no lines of text are on {len(self.empty)} of {count} pages, which are empty: {names}", file=sys.stderr
            )
        for sentence in (low_confidence_warning(self.lines), low_confidence_pages(self.pages)):
            if sentence:
                print(visible(sentence), file=sys.stderr)


def _content(
    source: Source, transcripts: Sequence[Transcript], finder: PageFinder | None, wanted: Wanted
) -> str | bytes:
    if wanted.format not in PAGE_FORMATS:
        return content_of(transcripts, wanted.format)
    segmentation = finder.segmentation if finder else None
    return page_content(source, transcripts, segmentation, wanted.format, wanted.weights, wanted.any_image)


def _write(content: str | bytes, source: Source, wanted: Wanted, stream: TextIO | None) -> None:
    if stream is not None and isinstance(content, str):
        stream.write(content)
        stream.flush()
        return
    target = target_of(source, wanted.format, wanted.output)
    if is_folder(wanted.output):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part:
        part.write_bytes(content if isinstance(content, bytes) else content.encode())
