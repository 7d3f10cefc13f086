import pytest
import torch
from torchmetrics.text import CharErrorRate, WordErrorRate

from gcsa.tasks.recognition.metrics import error_rate, missing_characters, text_scores

REFERENCES = ["the cat sat", "on the mat", "été", "\u017fo \u017fei es"]
PREDICTIONS = ["the cat sat", "on mat the", "ete", ""]


def test_rates_are_those_of_torchmetrics() -> None:
    scores = text_scores(PREDICTIONS, REFERENCES)
    assert scores.lines == 4
    assert scores.cer == pytest.approx(CharErrorRate()(PREDICTIONS, REFERENCES).item())
    assert scores.wer == pytest.approx(WordErrorRate()(PREDICTIONS, REFERENCES).item())


def test_rates_by_hand() -> None:
    scores = text_scores(["abcd", "x y"], ["abce", "x y z"])
    assert (scores.cer, scores.wer) == pytest.approx((3 / 9, 2 / 4))


def test_texts_are_normalised_first() -> None:
    scores = text_scores(["e\u0301te\u0301  x "], ["\u00e9t\u00e9 \u200fx"])
    assert scores.cer == scores.wer == 0
    assert scores.cer_interval == (0, 0)


def test_intervals() -> None:
    few, many = torch.tensor([0.0, 1, 3, 0]), torch.tensor([10.0, 10, 10, 10])
    rate, low, high = error_rate(few, many)
    assert rate == pytest.approx(0.1)
    assert low < rate < high
    assert error_rate(few, many) == (rate, low, high), "seeded"
    narrow = error_rate(few.repeat(100), many.repeat(100))
    assert narrow[2] - narrow[1] < 0.2 * (high - low)
    generator = torch.Generator().manual_seed(0)
    wrong, hits = torch.full((200,), 0.2), 0
    for _ in range(100):  # the interval covers the true rate about 95 times of a hundred
        _, low, high = error_rate(torch.bernoulli(wrong, generator=generator), torch.ones(200))
        hits += low <= 0.2 <= high
    assert 88 <= hits <= 100


def test_what_is_never_written() -> None:
    assert missing_characters(PREDICTIONS, REFERENCES) == {"é": 2, "\u017f": 2, "i": 1}


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [([], [], "at least 1"), (["a"], ["a", "b"], "equally many"), (["a", "b"], ["a", " "], "reference 1 is empty")],
)
def test_impossible_input(predictions: list[str], references: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        text_scores(predictions, references)
