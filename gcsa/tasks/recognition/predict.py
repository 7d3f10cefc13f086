"""A trained recogniser with all that reading takes: `gcsa.load("gcsa_ocr_tiny.print").predict(["line.png", "page.xml"])`.

Lines are fitted to the recogniser, read greedily in every orientation that fits, and the most confident reading is kept. A single
line may read as well upside down: a number, a title in capitals, an ornament. So the lines of a page vote for its orientation
(`page_orientation`), and all of them are then read in it. Only a line that stands across the others, at least `ACROSS` times as
long in its own direction, keeps its own. The polygon of a line on a page leaves much paper or little, so such a line is read with
and without its margins, and the more confident reading counts.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import is_number
from gcsa.evaluation.audited import Audited, AuditOptions, Progress, check_some, read_pictures, silent
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.images.pixels import from_pillow, naming, to_grey
from gcsa.tasks.base import Exporter, Predictor, merge_adapter
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.charset import stored_characters
from gcsa.tasks.recognition.data.cutting import FoundLine
from gcsa.tasks.recognition.data.line_image import Line, fit_bytes, read_line, without_margins
from gcsa.tasks.recognition.pages.inputs import (
    UNREADABLE,
    LineInput,
    Source,
    Transcript,
    find_lines,
    has_page_size,
    is_xml,
    reason,
)
from gcsa.tasks.recognition.pages.layout import Ink, PageFinder, find_layout, page_colours
from gcsa.tasks.recognition.pages.reading_order import arranged, order_on_page
from gcsa.tasks.recognition.reading import (
    CALIBRATION,
    CONFIDENT,
    Reading,
    calibrated,
    mean_confidence,
    most_confident,
    page_orientation,
)
from gcsa.weights import Weights, fill, read_adapter

ACROSS = 3
MOST_WORKERS = 8
"""Batches that are read at a time on a CPU, each of which takes memory of its own: 16 printed lines some 100 MB."""
CHUNK = 1024
"""Lines that are sorted into batches of one size, and held in memory, at a time: 20 kB each where they are of print."""

Readings = dict[int, Reading]
"""Of one line, by orientation in degrees."""
Advance = Callable[[int], object]


def make_predictor(weights: Weights, adapter: str | Path | None = None) -> RecognitionPredictor:
    """The recogniser in `weights`, as read; the `adapter` in a folder, or a published one, is merged.

    Raises FileNotFoundError for a missing file, and ValueError for a damaged one, for other tensors than the recogniser's and for
    an adapter of another one.
    """
    network = fill(lambda: empty_recognizer(weights), weights)
    return RecognitionPredictor(network if adapter is None else _adapted(network, adapter))


def empty_recognizer(weights: Weights) -> CTCRecognizer:
    """The recogniser that `weights` describe, with random numbers. Raises ValueError for weights without characters."""
    network = CTCRecognizer(stored_characters(weights), weights.architecture, **weights.options)
    network.calibration = stored_calibration(weights)
    return network


def stored_calibration(weights: Weights) -> tuple[float, float]:
    """The numbers of `calibrated` for these weights. Raises UserError for a damaged entry."""
    given = weights.entry(
        "calibration",
        lambda value: (
            isinstance(value, list) and len(value) == 2 and is_number(value[0], 0, 8) and is_number(value[1], -20, 20)
        ),
        "a slope from 0 to 8 and an offset from -20 to 20",
    )
    return CALIBRATION if given is None else (given[0], given[1])


def _adapted(network: CTCRecognizer, adapter: str | Path) -> CTCRecognizer:
    characters = read_adapter(adapter).characters
    if characters is None:
        raise FileNotFoundError(
            f"there is no {Path(adapter) / 'charset.txt'}: name the adapter folder of a run on text lines"
        )
    try:
        network.extend(characters)
    except ValueError as error:
        raise UserError(
            f"the adapter {adapter} is of another recogniser, which knows other characters: name its base",
            "adapter.other_model",
        ) from error
    merged: CTCRecognizer = merge_adapter(network, adapter)
    return merged


@dataclass(frozen=True)
class _Line:
    """A line, rotated by `orientation` degrees, which was `cut` from a page by a polygon or not."""

    ink: Ink
    orientation: int = 0
    cut: bool = False

    def crops(self) -> list[Tensor]:
        whole = torch.rot90(self.ink(), -self.orientation // 90, (1, 2))
        inner = without_margins(whole) if self.cut else whole
        return [whole] if inner.shape == whole.shape else [whole, inner]


@dataclass(frozen=True)
class _Item:
    """The lines of one image of `predict`, which are rotated by `orientation` degrees before they are read; `found` where they were
    searched on the image of a page."""

    inks: list[Ink]
    orientation: int = 0
    is_page: bool = False
    found: list[FoundLine] | None = None


class RecognitionPredictor(Predictor):
    """Reads lines and pages."""

    kind = "recognition"
    audit_kind = "reader"
    network: CTCRecognizer

    def __init__(self, network: Any) -> None:
        super().__init__(network, self._ink)

    @property
    def exporters(self) -> dict[str, Exporter]:
        return super().exporters | {"kraken": self._to_kraken}

    @property
    def input_size(self) -> tuple[int, int, int]:
        """A line of twelve times its height."""
        height, stride = self.network.height, self.network.stride
        return 1, height, 12 * stride * (height // stride)

    def _to_kraken(self, source: str, file: Path) -> str:
        from gcsa.tasks.recognition.kraken.file import write_kraken

        write_kraken(self.network, file)
        return f"{file} (kraken, {file.stat().st_size / 1e6:.1f} MB): kraken ... ocr -m {file}"

    def describe(self) -> dict[str, Any]:
        network = self.network
        known = {"characters": network.charset.characters, "height": network.height}
        return super().describe() | known | {"calibration": list(getattr(network, "calibration", CALIBRATION))}

    def audit(
        self,
        images: Sequence[Path],
        options: AuditOptions,
        network: nn.Module | None = None,
        progress: Progress = silent,
    ) -> Audited:
        from gcsa.tasks.recognition.audit import audit

        failed: list[str] = []
        with progress(4 * len(images)) as advance:
            found = audit(self, read_pictures(images, 3, failed), advance)
        check_some(images, failed)
        return Audited(self.audit_kind, found, failed)

    def _ink(self, image: Any, upright: bool = False) -> Tensor:
        """Ink from 0 to 1 of a line, as of `predict` or a `Line`: (1, height, W), or (1, W, height) of one that stands.

        upright: (1, height, W) in any case. Raises ValueError as `read_line` and `fit_line`.
        """
        source = image if isinstance(image, Line | str | Path) else _picture(image)
        return self._fit(read_line(source, self.network.height), upright).float().div_(255)

    def _fit(self, ink: Tensor, upright: bool) -> Tensor:
        return fit_bytes(ink, self.network.height, self.network.stride, upright)

    def predict(self, images: Any, orientation: str = "any", beams: int = 1, batch_size: int = 16) -> Any:
        """The text of one image or of several.

        Args:
            images: a path of an image, a PAGE-XML or an ALTO file, an array (H, W) or (H, W, C), a PIL image or a tensor (C, H, W),
                floats from 0 to 1; or a list of these. On an image that is too large to be a line (`has_page_size`) the lines
                are searched (`detect_lines`).
            orientation: "any" for lines and pages rotated by any multiple of 90 degrees, or "upright", which is faster, most of all
                without rotations by 90 degrees in the group (`read_orientations`).
            beams: above 1, the text comes from a beam search, and characters have no positions.
            batch_size: lines of one size that are read together.

        Returns:
            A `Reading` for a line, and a list of them in reading order for a page; of a list, a list of these.

        Raises:
            ValueError: an image or a line that cannot be read, a page without rapidocr, what `read_orientations` refuses.
        """
        if not isinstance(images, list | tuple):
            return self.predict([images], orientation, beams, batch_size)[0]
        items = [self._item(image, orientation) for image in images]
        inks = [ink for item in items for ink in item.inks]
        pages = [i if item.is_page else None for i, item in enumerate(items) for _ in item.inks]
        readings = iter(self.read_lines(inks, pages, orientation, beams, batch_size))
        results: list[Reading | list[Reading]] = []
        for item in items:
            lines = [_rotated(_checked(reading), item.orientation) for reading in islice(readings, len(item.inks))]
            if item.found is not None:
                lines = [lines[i] for block in order_on_page(item.found, lines) for i in block]
            results.append(lines if item.is_page else lines[0])
        return results

    def _item(self, image: Any, orientation: str) -> _Item:
        height, upright = self.network.height, orientation == "upright"
        if isinstance(image, str | os.PathLike):
            source = Source(Path(image))
            sources = find_lines(source, PageFinder(upright))
            lines = [_checked(source.line or UserError(source.error, "line.refused")) for source in sources]
            inks: list[Ink] = [partial(source.ink, height) for source in sources]
            if len(sources) == 1 and sources[0].number is None:
                return _Item(inks)
            found = None if is_xml(source.file) else [FoundLine(line.polygon, line.baseline) for line in lines]
            return _Item(inks, lines[0].orientation if lines else 0, True, found)
        picture = _picture(image)
        if not has_page_size(*picture.size):
            return _Item([partial(read_line, picture, height)])
        size = f"an image of {picture.width} x {picture.height} pixels"
        with naming("the image"):
            pixels = from_pillow(picture)
            grey, colours = to_grey(pixels), page_colours(pixels)
        layout = find_layout(grey, colours, size, upright)
        return _Item(layout.inks(size, height), layout.orientation, True, layout.as_scanned())

    def transcribe(
        self,
        sources: Iterable[Sequence[LineInput]],
        orientation: str = "any",
        beams: int = 1,
        batch_size: int = 16,
        advance: Advance = lambda count: None,
    ) -> Iterator[list[Transcript]]:
        """The transcripts of the lines of each of `sources`, of `find_lines`, in their order. See `read_lines`.

        A page is read before the next one is asked for; lines by themselves are read `CHUNK` at a time. `advance` is called with
        the number of sources completed.
        """
        for chunk in _chunks(sources):
            is_page = _is_page(chunk[0])
            lines = [(source, source.line) for inputs in chunk for source in inputs if source.line is not None]
            inks: list[Ink] = [partial(source.ink, self.network.height) for source, _ in lines]
            advance_lines: Advance = (lambda count: None) if is_page else advance
            pages = [0] * len(inks) if is_page else ()
            readings = iter(self.read_lines(inks, pages, orientation, beams, batch_size, advance_lines))
            advance(1 if is_page else len(chunk) - len(lines))
            for inputs in chunk:
                transcripts = [_transcript(source, readings) for source in inputs]
                yield arranged(transcripts) if is_page and not _in_order(inputs) else transcripts

    def read_lines(
        self,
        inks: Sequence[Ink],
        pages: Sequence[Hashable] = (),
        orientation: str = "any",
        beams: int = 1,
        batch_size: int = 16,
        advance: Advance = lambda count: None,
    ) -> list[Reading | BaseException]:
        """What each line says, or why it could not be read. The other lines do not influence the text of a line by itself.

        Args:
            inks: give the ink (1, h, w) of a line, and may be called twice.
            pages: the page of each line, None for a line by itself; () if all are.
            orientation, beams, batch_size: of `predict`.
            advance: called with the number of lines completed.
        """
        on_page = {i for i, page in enumerate(pages) if page is not None}
        all_lines = {i: _Line(ink, cut=i in on_page) for i, ink in enumerate(inks)}
        found = self._read(all_lines, orientation, beams, batch_size, advance)
        result: list[Any] = [
            most_confident(readings) if isinstance(readings, dict) else readings
            for _, readings in sorted(found.items())
        ]
        again: dict[int, _Line] = {}
        for lines in _by_page(pages, found):
            known = {i: readings for i in lines if isinstance(readings := found[i], dict)}
            degrees = _page_orientation([*known.values()])
            for i, readings in known.items():
                if degrees in readings:
                    result[i] = readings[degrees]
                elif _is_compact(inks[i]()):
                    again[i] = _Line(inks[i], degrees, cut=True)
        for i, readings in self._read(again, "upright", beams, batch_size).items():
            if isinstance(readings, dict):
                result[i] = _rotated(readings[0], again[i].orientation)
        calibration = getattr(self.network, "calibration", CALIBRATION)  # a network of somebody else has none
        return [calibrated(reading, calibration) if isinstance(reading, Reading) else reading for reading in result]

    def _read(
        self,
        lines: dict[int, _Line],
        orientation: str,
        beams: int,
        batch_size: int,
        advance: Advance = lambda count: None,
    ) -> dict[int, Readings | BaseException]:
        """The readings of `lines` by their numbers, in every orientation that fits."""
        device = next(self.network.parameters()).device
        autocast = torch.get_autocast_dtype(device.type), torch.is_autocast_enabled(device.type)  # of this thread

        def read(batch: list[tuple[int, Tensor]]) -> list[Readings]:
            images = torch.stack([image for _, image in batch]).to(device).float().div_(255)
            with torch.autocast(device.type, *autocast):
                return self.network.read_orientations(images, orientation, beams)

        found: dict[int, Readings | BaseException] = {}
        buckets: dict[torch.Size, list[tuple[int, Tensor]]] = defaultdict(list)
        for i, line in lines.items():
            try:
                images = [self._fit(crop, orientation == "upright") for crop in line.crops()]
            except UNREADABLE as error:  # the other lines are read
                found[i] = error
            else:
                for image in images:
                    buckets[image.shape].append((i, image))
        advance(len(found))
        batches = [
            bucket[start : start + batch_size]
            for bucket in buckets.values()
            for start in range(0, len(bucket), batch_size)
        ]
        with evaluation_mode(self.network), _parallel_map(device, len(batches)) as run:
            for batch, results in zip(batches, run(read, batches), strict=True):
                done = len(found)
                for (i, _), readings in zip(batch, results, strict=True):
                    found[i] = _better(found.get(i), readings)
                advance(len(found) - done)
        return found


def low_confidence_warning(readings: Sequence[tuple[int, float]]) -> str:
    """A sentence where `readings` of (characters, confidence) have a low confidence as a whole, else nothing."""
    confidence = mean_confidence(readings)
    if not any(length for length, _ in readings) or confidence >= CONFIDENT:
        return ""
    return (
        f"The text was read with a confidence of {confidence:.2f}, below {CONFIDENT}: expect many errors. Was the model "
        "made for this script and type?"
    )


def low_confidence_pages(pages: Mapping[str, float]) -> str:
    """A sentence where some of `pages`, confidences by name, are below `CONFIDENT`, else nothing."""
    unsure = [f"{name} ({confidence:.2f})" for name, confidence in pages.items() if confidence < CONFIDENT]
    if not unsure:
        return ""
    return (
        f"pages that were read with a confidence below {CONFIDENT}, so that many errors are to be expected: {', '.join(unsure)}. "
        "Was the model made for their script and type?"
    )


def _checked(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return result


def _rotated(reading: Reading, degrees: int) -> Reading:
    """A reading of a line that was rotated back by `degrees` before it was read."""
    return replace(reading, orientation=(reading.orientation + degrees) % 360)


def _picture(image: Any) -> Image.Image:
    """A PIL image of an array (H, W) or (H, W, C), or a tensor (C, H, W); floats from 0 to 1."""
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, Tensor):
        image = (image.movedim(0, -1) if image.ndim == 3 else image).detach().cpu().numpy()
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise UserError(
            f"an image has the shape (H, W), (H, W, C) or, as a tensor, (C, H, W), not {pixels.shape}", "image.shape"
        )
    if pixels.dtype.kind == "f":
        if not (pixels.min() >= 0 and pixels.max() <= 1):
            raise UserError(
                f"an image of floats must lie in 0..1, not {pixels.min():g}..{pixels.max():g}", "image.range"
            )
        pixels = pixels.astype(np.float32) if pixels.ndim == 2 else (255 * pixels).round().astype(np.uint8)
    try:
        return Image.fromarray(np.ascontiguousarray(pixels))
    except TypeError as error:
        raise UserError(
            f"an array of {pixels.dtype} and shape {pixels.shape} is no image: give uint8", "image.array"
        ) from error


def _page_orientation(lines: Sequence[Readings]) -> int:
    return page_orientation(lines, [max(len(reading.text) for reading in readings.values()) for readings in lines])


def _by_page(pages: Sequence[Hashable], found: dict[int, Any]) -> list[list[int]]:
    lines: dict[Hashable, list[int]] = defaultdict(list)
    for i, page in enumerate(pages):
        if page is not None and isinstance(found[i], dict):
            lines[page].append(i)
    return [*lines.values()]


def _is_compact(ink: Tensor) -> bool:
    """Whether a line is so short that its sides do not tell its direction."""
    short, long = sorted(ink.shape[-2:])
    return long < ACROSS * short


def _better(known: Readings | BaseException | None, readings: Readings) -> Readings:
    """The more confident of two readings in each orientation."""
    if not isinstance(known, dict):
        return readings
    return {
        degrees: most_confident({0: known[degrees], 1: reading}) if degrees in known else reading
        for degrees, reading in readings.items()
    }


def _is_page(lines: Sequence[LineInput]) -> bool:
    return not lines or lines[0].number is not None


def _in_order(lines: Sequence[LineInput]) -> bool:
    """Whether the lines of a page come from a file that says their order."""
    return not lines or is_xml(lines[0].source.file)


def _chunks(sources: Iterable[Sequence[LineInput]]) -> Iterator[list[Sequence[LineInput]]]:
    """A page each, or at most `CHUNK` lines by themselves."""
    chunk: list[Sequence[LineInput]] = []
    for lines in sources:
        if chunk and (len(chunk) >= CHUNK or _is_page(lines)):
            yield chunk
            chunk = []
        chunk.append(lines)
        if _is_page(lines):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _transcript(source: LineInput, readings: Iterator[Reading | BaseException]) -> Transcript:
    source = replace(source, grey=None)  # which a transcript need not keep
    if source.line is None:
        return Transcript(source, error=source.error)
    reading = next(readings)
    if isinstance(reading, Reading):
        return Transcript(source, _rotated(reading, source.line.orientation))
    return Transcript(source, error=reason(reading, source.source))


@contextmanager
def _parallel_map(device: torch.device, batches: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """`map`, or on a CPU one that reads several batches at a time, each in a thread of its own.

    A batch of lines is so small that torch's threads would mostly wait for each other.
    """
    threads = torch.get_num_threads()
    workers = min(threads, MOST_WORKERS, batches)
    if device.type != "cpu" or workers <= 1:
        yield map
        return
    torch.set_num_threads(-(-threads // workers))
    try:
        with ThreadPoolExecutor(workers) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(threads)
