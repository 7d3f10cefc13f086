"""How well a recogniser reads: error rates with bootstrap intervals, of upright lines and of rotated ones.

A rate is the sum of the edit distances of all lines over the sum of the lengths of their references (torchmetrics'
CharErrorRate and WordErrorRate). Its 95 % interval holds the middle of the rates of 1,000 samples of lines, drawn with
replacement (the percentile bootstrap, Efron 1979), because the characters of one line are not independent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.text import char_error_rate

from gcsa._utils.errors import UserError
from gcsa.data.loaders import seeded_generator
from gcsa.tasks.recognition.data.charset import normalize
from gcsa.tasks.recognition.data.line_image import Line, read_line
from gcsa.tasks.recognition.pages.forms import fold
from gcsa.tasks.recognition.predict import RecognitionPredictor
from gcsa.tasks.recognition.reading import Reading

RESAMPLES = 1000
NAMES = {
    "cer": "CER, upright lines",
    "cer_folded": "CER, folded",
    "wer": "WER, upright lines",
    "cer_any": "CER, orientation unknown",
    "orientation_found": "orientation found",
    "same_when_rotated": "same text at 0, 90, 180 and 270 degrees",
    "cer_upside_down": "CER, lines upside down",
}
"""Of the results of `measure` in a table."""


@dataclass(frozen=True)
class TextScores:
    """Fractions, which can exceed 1, with their 95 % intervals."""

    lines: int
    cer: float
    cer_interval: tuple[float, float]
    wer: float
    wer_interval: tuple[float, float]


def measure(predictor: RecognitionPredictor, lines: Sequence[Line], batch_size: int = 16) -> dict[str, Any]:
    """Reads every line and compares with its text; rates are fractions, intervals at 95 %.

    cer, wer: of upright lines, read as such; cer_folded: where neither ligatures, long s, apostrophes, hyphens nor spaces before punctuation
    tell two texts apart (`fold`). documents: the number of lines, cer and cer_folded of each document. cer_any: of the same lines where the orientation is not known; orientation_found, the
    share of lines for which it is right; same_when_rotated, the share of lines of which the texts at 0, 90, 180 and 270 degrees
    are identical. Without rotations by 90 degrees in the group also cer_upside_down, of lines rotated by 180 degrees and read as
    upright.

    Raises ValueError for a line that cannot be read.
    """
    texts = [line.text for line in lines]

    def read(degrees: int, orientation: str) -> list[Reading]:
        inks = [partial(_rotated_ink, line, predictor.network.height, degrees) for line in lines]
        readings: list[Any] = predictor.read_lines(inks, (), orientation, batch_size=batch_size)
        for reading in readings:
            if isinstance(reading, BaseException):
                raise reading
        return readings

    def scores(readings: Sequence[Reading]) -> TextScores:
        return text_scores([reading.text for reading in readings], texts)

    found = [reading.text for reading in read(0, "upright")]
    upright, folded = text_scores(found, texts), text_scores([*map(fold, found)], [*map(fold, texts)])
    rates: dict[str, Any] = {"cer": upright.cer, "cer_interval": list(upright.cer_interval)}
    rates |= {"cer_folded": folded.cer, "cer_folded_interval": list(folded.cer_interval)}
    rates |= {"wer": upright.wer, "wer_interval": list(upright.wer_interval)}
    if predictor.group.rotations % 4 != 0:
        rates["cer_upside_down"] = scores(read(180, "upright")).cer
    rotated = [read(degrees, "any") for degrees in (0, 90, 180, 270)]
    same = [len({reading.text for reading in line}) == 1 for line in zip(*rotated, strict=True)]
    return rates | {
        "cer_any": scores(rotated[0]).cer,
        "orientation_found": sum(reading.orientation == 0 for reading in rotated[0]) / len(lines),
        "same_when_rotated": sum(same) / len(lines),
        "documents": _by_document(lines, found),
    }


def _by_document(lines: Sequence[Line], found: Sequence[str]) -> dict[str, dict[str, float]]:
    """Number of lines and error rates of each document, the worst first."""
    texts: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for line, text in zip(lines, found, strict=True):
        texts[line.document][0].append(text)
        texts[line.document][1].append(line.text)
    rates = {
        name: {
            "lines": len(meant),
            "cer": text_scores(read, meant).cer,
            "cer_folded": text_scores([*map(fold, read)], [*map(fold, meant)]).cer,
        }
        for name, (read, meant) in texts.items()
    }
    return dict(sorted(rates.items(), key=lambda item: -item[1]["cer"]))


def _rotated_ink(line: Line, height: int, degrees: int) -> Tensor:
    return torch.rot90(read_line(line, height), degrees // 90, (1, 2))


def text_scores(predictions: Sequence[str], references: Sequence[str], seed: int = 0) -> TextScores:
    """Error rates of predicted texts, both normalised first.

    Raises:
        ValueError: no lines, unequally many, or an empty reference.
    """
    predicted, meant = [normalize(text) for text in predictions], [normalize(text) for text in references]
    if len(predicted) != len(meant) or not meant:
        raise UserError(
            f"{len(predicted)} predictions and {len(meant)} references must be equally many, at least 1", "texts.counts"
        )
    if not all(meant):
        raise UserError(f"reference {meant.index('')} is empty: error rates need a text in every line", "texts.empty")
    cer = error_rate(*edits(predicted, meant), seed=seed)
    wer = error_rate(*edits(*words_as_characters(predicted, meant)), seed=seed)
    return TextScores(len(meant), cer[0], cer[1:], wer[0], wer[1:])


def edits(predictions: Sequence[str], references: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Levenshtein distances (N,) and lengths (N,) of the references, in code points.

    They come from `char_error_rate`, which is exact: torchmetrics' `edit_distance` searches a beam, and counts too much where a whole line
    of a page is missing.
    """
    pairs = zip(predictions, references, strict=True)
    distances = [round(float(char_error_rate(text, reference)) * len(reference)) for text, reference in pairs]
    return torch.tensor(distances), torch.tensor([len(text) for text in references])


def words_as_characters(predictions: Sequence[str], references: Sequence[str]) -> tuple[list[str], list[str]]:
    """The texts with one character for each different word, so that `edits` counts words."""
    code: dict[str, str] = {}
    encoded = [
        ["".join(code.setdefault(word, chr(len(code))) for word in text.split()) for text in texts]
        for texts in (predictions, references)
    ]
    return encoded[0], encoded[1]


def error_rate(distances: Tensor, lengths: Tensor, seed: int = 0) -> tuple[float, float, float]:
    """The rate of distances (N,) to lengths (N,), and the ends of its 95 % interval."""
    rows = torch.randint(len(lengths), (RESAMPLES, len(lengths)), generator=seeded_generator(seed))
    distances, lengths = distances.double(), lengths.double()
    samples = distances[rows].sum(1) / lengths[rows].sum(1)
    low, high = torch.quantile(samples, torch.tensor([0.025, 0.975], dtype=torch.double)).tolist()
    return (distances.sum() / lengths.sum()).item(), low, high
