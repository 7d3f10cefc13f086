"""Character and word error rates with bootstrap intervals.

A rate is the sum of the edit distances of all lines over the sum of the lengths of their references (torchmetrics'
CharErrorRate and WordErrorRate). Its 95 % interval holds the middle of the rates of 1,000 samples of lines, drawn
with replacement (the percentile bootstrap, Efron 1979), because the characters of one line are not independent.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics.functional.text import edit_distance

from gcsa._utils.errors import UserError
from gcsa.tasks.loading import seeded_generator
from gcsa.tasks.recognition.data.charset import normalize

RESAMPLES = 1000


@dataclass(frozen=True)
class TextScores:
    """Fractions, which can exceed 1, with their 95 % intervals."""

    lines: int
    cer: float
    cer_interval: tuple[float, float]
    wer: float
    wer_interval: tuple[float, float]


def text_scores(predictions: Sequence[str], references: Sequence[str], seed: int = 0) -> TextScores:
    """Error rates of predicted texts, both normalised first.

    Raises:
        ValueError: no lines, unequally many, or an empty reference.
    """
    predicted, meant = [normalize(text) for text in predictions], [normalize(text) for text in references]
    if len(predicted) != len(meant) or not meant:
        raise UserError(f"{len(predicted)} predictions and {len(meant)} references must be equally many, at least 1")
    if not all(meant):
        raise UserError(f"reference {meant.index('')} is empty: error rates need a text in every line")
    cer = error_rate(*edits(predicted, meant), seed=seed)
    wer = error_rate(*edits(*words_as_characters(predicted, meant)), seed=seed)
    return TextScores(len(meant), cer[0], cer[1:], wer[0], wer[1:])


def edits(predictions: Sequence[str], references: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Levenshtein distances (N,) and lengths (N,) of the references, in code points."""
    distances = edit_distance(list(predictions), list(references), reduction="none")
    return distances, torch.tensor([len(text) for text in references])


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


def missing_characters(predictions: Sequence[str], references: Sequence[str]) -> Counter[str]:
    """How often each character that no prediction holds occurs in the references: what a model never writes."""
    written = set().union(*map(normalize, predictions))
    counts = Counter(character for text in references for character in normalize(text))
    return Counter({character: count for character, count in counts.items() if character not in written})
