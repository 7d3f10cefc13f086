"""Many lines read in batches of one size, and the lines of a page in one frame.

A line by itself may look alike upside down: a number, a title in capitals, an ornament. So the lines of a page decide
together how it lies (`turn_of_page`), and all of them are then read in that frame; only a line that stands across the
others, at least `ACROSS` times as long in its own direction, keeps its own. A line of a page is cut out by a polygon, which
leaves much paper or little: it is read with and without its margins, and the more confident reading counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.line_image import fit_line, without_margins
from gcsa.tasks.recognition.reading import Reading, most_confident, turn_of_page

ACROSS = 3
MOST_WORKERS = 8
"""Batches that are read at a time on a CPU, each of which takes memory of its own: 16 printed lines some 100 MB."""
UNREADABLE = (ValueError, OSError, MemoryError)
"""What reading a line or a page raises."""

Frames = dict[int, Reading]


@dataclass(frozen=True)
class _Line:
    """What gives the ink of a line that is turned by `turn` degrees, and whether it was cut from a page by a polygon."""

    ink: Callable[[], Tensor]
    turn: int = 0
    cut: bool = False

    def crops(self) -> list[Tensor]:
        whole = torch.rot90(self.ink(), -self.turn // 90, (1, 2))
        inner = without_margins(whole) if self.cut else whole
        return [whole] if inner.shape == whole.shape else [whole, inner]


def read_lines(
    model: CTCRecognizer,
    inks: Sequence[Callable[[], Tensor]],
    pages: Sequence[Hashable] = (),
    orientation: str = "upright",
    beams: int = 1,
    batch_size: int = 16,
    advance: Callable[[int], object] = lambda count: None,
) -> list[Reading | BaseException]:
    """What each line says, or why it could not be read. A line reads the same whatever is read with it.

    inks: give the ink (1, h, w) of a line, and may be asked twice; pages: what page each line is of, None for one that
    is by itself, or () if all are; orientation, beams: of `CTCRecognizer.read`, whose ValueErrors are raised;
    batch_size: lines of one size that are read together; advance: called with the number of lines that are done.
    """
    of_page = {i for i, page in enumerate(pages) if page is not None}
    everything = {i: _Line(ink, cut=i in of_page) for i, ink in enumerate(inks)}
    found = _read_frames(model, everything, orientation, beams, batch_size, advance)
    result: list[Any] = [
        most_confident(frames) if isinstance(frames, dict) else frames for _, frames in sorted(found.items())
    ]
    again: dict[int, _Line] = {}
    for lines in _by_page(pages, found):
        known = {i: frames for i in lines if isinstance(frames := found[i], dict)}
        turn = _turn([*known.values()])
        for i, frames in known.items():
            if turn in frames:
                result[i] = frames[turn]
            elif _is_compact(inks[i]()):
                again[i] = _Line(inks[i], turn, cut=True)
    for i, frames in _read_frames(model, again, "upright", beams, batch_size).items():
        if isinstance(frames, dict):
            upright = frames[0]
            result[i] = Reading(upright.text, upright.confidence, again[i].turn, upright.signs)
    return result


def lines_turn(model: CTCRecognizer, inks: Sequence[Callable[[], Tensor]]) -> int:
    """By how many degrees the lines of a page are turned, as `read_lines` decides."""
    found = _read_frames(model, {i: _Line(ink, cut=True) for i, ink in enumerate(inks)}, "any", 1, 16)
    return _turn([frames for frames in found.values() if isinstance(frames, dict)])


def _turn(lines: Sequence[Frames]) -> int:
    return turn_of_page(lines, [max(len(reading.text) for reading in frames.values()) for frames in lines])


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


def _read_frames(
    model: CTCRecognizer,
    lines: dict[int, _Line],
    orientation: str,
    beams: int,
    batch_size: int,
    advance: Callable[[int], object] = lambda count: None,
) -> dict[int, Frames | BaseException]:
    """The readings of `lines` by their numbers, in every frame that fits."""
    device = next(model.parameters()).device
    autocast = torch.get_autocast_dtype(device.type), torch.is_autocast_enabled(device.type)  # of this thread

    def read(batch: list[tuple[int, Tensor]]) -> list[Frames]:
        images = torch.stack([image for _, image in batch]).to(device).float().div_(255)
        with torch.autocast(device.type, *autocast):
            return model.read_frames(images, orientation, beams)

    found: dict[int, Frames | BaseException] = {}
    buckets: dict[torch.Size, list[tuple[int, Tensor]]] = defaultdict(list)
    for i, line in lines.items():
        try:
            images = [_fitted(model, crop, orientation) for crop in line.crops()]
        except UNREADABLE as error:  # the other lines are read
            found[i] = error
        else:
            for image in images:
                buckets[image.shape].append((i, image))
    advance(len(found))
    batches = [
        bucket[start : start + batch_size] for bucket in buckets.values() for start in range(0, len(bucket), batch_size)
    ]
    with _side_by_side(device, len(batches)) as run:
        for batch, readings in zip(batches, run(read, batches), strict=True):
            known = len(found)
            for (i, _), frames in zip(batch, readings, strict=True):
                found[i] = _better(found.get(i), frames)
            advance(len(found) - known)
    return found


def _fitted(model: CTCRecognizer, ink: Tensor, orientation: str) -> Tensor:
    """As the training data has it: uint8 (1, height, W), or (1, W, height) where a turned line stays turned."""
    return fit_line(ink, model.height, model.stride, orientation == "upright").mul(255).round_().to(torch.uint8)


def _better(known: Frames | BaseException | None, frames: Frames) -> Frames:
    """Of two readings in a frame the more confident."""
    if not isinstance(known, dict):
        return frames
    return {
        turn: most_confident({0: known[turn], 1: reading}) if turn in known else reading
        for turn, reading in frames.items()
    }


@contextmanager
def _side_by_side(device: torch.device, batches: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """`map`, or on a CPU one that reads several batches at a time. A batch of lines is so small that torch's threads mostly
    wait for one another; where each has a batch of its own, they do not."""
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
