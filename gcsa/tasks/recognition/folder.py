"""Many pages and lines to text: into one stream, or a file for each, which is written as soon as it is read."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch

from gcsa import batch
from gcsa._utils.atomic import replacing
from gcsa._utils.errors import visible
from gcsa._utils.memory import give_back_memory
from gcsa.tasks.recognition.choices import FINDERS, PAGE_FORMATS, SCREEN, is_folder
from gcsa.tasks.recognition.data.line_image import forget_page
from gcsa.tasks.recognition.pages.forms import to_form
from gcsa.tasks.recognition.pages.inputs import (
    UNREADABLE,
    LineInput,
    Source,
    Transcript,
    find_lines,
    is_page,
    is_xml,
    reason,
)
from gcsa.tasks.recognition.pages.layout import PageFinder, finder_of
from gcsa.tasks.recognition.pages.output import content_of, page_content, target_of
from gcsa.tasks.recognition.predict import (
    RecognitionPredictor,
    low_confidence_pages,
    low_confidence_warning,
)
from gcsa.tasks.recognition.reading import LOW_CONFIDENCE, mean_confidence, text_orientation

LINES = 256
"""That go to another process at a time."""


@dataclass(frozen=True)
class Wanted:
    """How pages and lines are read, and what is written.

    Attributes:
        orientation, beams, batch_size: of `RecognitionPredictor.predict`.
        format: of `gcsa.tasks.recognition.choices.FORMATS`.
        forms: of `to_form`.
        output: the file or folder, where the text does not go into a stream.
        weights: their name, which XML says.
        any_image: of `find_lines`.
        half: whether the network computes in bfloat16.
        lines: of `gcsa.tasks.recognition.choices.FINDERS`.
    """

    orientation: str
    beams: int
    batch_size: int
    format: str
    forms: tuple[str, ...]
    output: str
    weights: str
    any_image: bool
    half: bool = False
    lines: str = FINDERS[0]


class ReadWork(batch.Work[Source]):
    """Reads pages and lines, and writes each page into a file of its own in the folder `wanted.output`; all else is the "text" of a result.

    A line that cannot be read counts by itself.
    """

    columns = ("page", "orientation", "lines", "low_confidence", "low_confidence_lines")

    def __init__(
        self, predictor: RecognitionPredictor, wanted: Wanted, settings: Mapping[str, Any], apart: bool = False
    ) -> None:
        """apart: pages may go to several processes."""
        self.predictor, self.wanted, self.settings, self.apart = predictor, wanted, settings, apart
        self.finder = PageFinder(wanted.orientation == "upright", finder_of(wanted.lines))

    def name(self, item: Source) -> str:
        return item.name

    def file(self, item: Source) -> Path:
        return item.file

    def outputs(self, item: Source) -> list[Path]:
        target = target_of(item, self.wanted.format, self.wanted.output)
        # An XML file that gets its text is there in any case.
        return [target] if is_folder(self.wanted.output) and target.resolve() != item.file.resolve() else []

    def chunks(self, items: Sequence[Source], done: Collection[int]) -> Iterator[Sequence[int]]:
        """Pages by themselves, and lines, which are read in batches, many together."""
        left = [number for number in range(len(items)) if number not in done]
        if not self.apart:
            yield from [left] if left else []
            return
        lines: list[int] = []
        for number in left:
            alone = is_xml(items[number].file) or is_page(items[number])
            if lines and (alone or len(lines) == LINES):
                yield lines
                lines = []
            if alone:
                yield [number]
            else:
                lines.append(number)
        if lines:
            yield lines

    def do(self, items: Sequence[Source], pace: batch.Pace) -> Iterator[batch.Result]:
        start, ahead = pace.number, 0

        def lines_of(source: Source) -> list[LineInput]:
            pace.show(source.name)
            return find_lines(source, self.finder, self.wanted.any_image)

        def advance(count: int) -> None:
            nonlocal ahead
            ahead += count
            pace.ahead(ahead - pace.number + start)

        device = next(self.predictor.network.parameters()).device.type
        options = self.wanted.orientation, self.wanted.beams, self.wanted.batch_size, advance
        found = self.predictor.transcribe(map(lines_of, items), *options)
        for source in items:
            with torch.autocast(device, torch.bfloat16, enabled=self.wanted.half):
                as_read = next(found)
            yield self._result(source, as_read)
            if len(as_read) > 1:
                forget_page()
                give_back_memory()

    def _result(self, source: Source, as_read: list[Transcript]) -> batch.Result:
        """Writes a page; what came of it."""
        transcripts = to_form(as_read, self.wanted.forms)
        readings = [transcript.reading for transcript in transcripts if transcript.reading is not None]
        failed = [transcript.error for transcript in transcripts if transcript.reading is None]
        as_page = self.wanted.format in PAGE_FORMATS
        by_file = is_folder(self.wanted.output) or (as_page and self.wanted.output != SCREEN)
        text, is_written = None, bool(readings or not transcripts)
        if is_written or not (by_file or as_page):  # in a stream, every line has its line
            try:
                content = _content(source, transcripts, self.wanted)
            except UNREADABLE as error:  # the other pages are written
                failed.append(reason(error, source))
                is_written = False
            else:
                if by_file:
                    _write(content, source, self.wanted)
                else:
                    text = content
        numbered = [
            t.input.number or 1 for t in transcripts if t.reading is not None and t.reading.confidence < LOW_CONFIDENCE
        ]
        alone = any(t.input.number is None and t.reading is not None for t in transcripts)
        values = {
            "page": source.page,
            "orientation": text_orientation(readings) if readings else None,
            "confidence": mean_confidence((len(r.text), r.confidence) for r in readings) if readings else None,
            "lines": len(readings),
            "low_confidence": len(numbered),
            "low_confidence_lines": " ".join(map(str, numbered)),
            "characters": sum(len(reading.text) for reading in readings),
            "alone": alone,
            "empty": not transcripts,
            "text": text,
        } | ({"seconds": None} if alone else {})  # lines by themselves are read many at a time
        return batch.Result(values, failed, is_written, max(1, len(transcripts)))


class Told:
    """What is said of a run, as it goes and behind it; where there is a `stream`, text goes there."""

    def __init__(self, wanted: Wanted, stream: TextIO | None) -> None:
        self.wanted, self.stream = wanted, stream
        self.empty: list[str] = []
        self.lines: list[tuple[int, float]] = []
        self.pages: dict[str, float] = {}

    def add(self, source: Source, result: batch.Result) -> None:
        """Takes a page or a line into account; says at once where most of a page may be wrong."""
        values = result.values
        if self.stream is not None and values.get("text") is not None:
            self.stream.write(values["text"])
            self.stream.flush()
        if not result.finished:
            return
        if values["empty"]:
            self.empty.append(source.name)
        elif values["alone"]:
            self.lines.append((values["characters"], values["confidence"]))
        elif (confidence := values["confidence"]) >= LOW_CONFIDENCE:
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


def _content(source: Source, transcripts: Sequence[Transcript], wanted: Wanted) -> str | bytes:
    if wanted.format not in PAGE_FORMATS:
        return content_of(transcripts, wanted.format)
    return page_content(source, transcripts, wanted.format, wanted.weights, wanted.any_image)


def _write(content: str | bytes, source: Source, wanted: Wanted) -> None:
    target = target_of(source, wanted.format, wanted.output)
    if is_folder(wanted.output):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part:
        part.write_bytes(content if isinstance(content, bytes) else content.encode())
