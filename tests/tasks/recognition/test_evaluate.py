"""Error rates against torchmetrics and by hand, and what is measured of a recogniser."""

from pathlib import Path

import pytest
import torch
from torchmetrics.text import CharErrorRate, WordErrorRate

from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.evaluate import error_rate, measure, text_scores
from gcsa.tasks.recognition.predict import RecognitionPredictor
from gcsa.tasks.recognition.reading import Reading
from tests.errors import raises
from tests.tasks.recognition.small import recognizer

REFERENCES = ["the cat sat", "on the mat", "été", "\u017fo \u017fei es"]
PREDICTIONS = ["the cat sat", "on mat the", "ete", ""]


def test_rates() -> None:
    scores = text_scores(PREDICTIONS, REFERENCES)
    assert scores.lines == 4
    assert scores.cer == pytest.approx(CharErrorRate()(PREDICTIONS, REFERENCES).item())
    assert scores.wer == pytest.approx(WordErrorRate()(PREDICTIONS, REFERENCES).item())
    scores = text_scores(["abcd", "x y"], ["abce", "x y z"])
    assert (scores.cer, scores.wer) == pytest.approx((3 / 9, 2 / 4))
    scores = text_scores(["e\u0301te\u0301  x "], ["\u00e9t\u00e9 \u200fx"])
    assert (scores.cer, scores.wer, scores.cer_interval) == (0, 0, (0, 0)), "both are normalised first"


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


@pytest.mark.parametrize(
    ("predictions", "references", "key"),
    [([], [], "texts.counts"), (["a"], ["a", "b"], "texts.counts"), (["a", "b"], ["a", " "], "texts.empty")],
)
def test_impossible_input(predictions: list[str], references: list[str], key: str) -> None:
    with raises(key):
        text_scores(predictions, references)


def test_what_is_measured_is_what_is_predicted(folder: Path) -> None:
    predictor = RecognitionPredictor(recognizer())
    files = sorted(folder.iterdir())[:3]
    readings = predictor.predict(files)
    found = measure(predictor, [Line(file, r.text) for file, r in zip(files, readings, strict=True)])
    assert (found["cer_any"], found["same_when_rotated"]) == (0, 1)
    assert found["orientation_found"] == sum(r.orientation == 0 for r in readings) / 3
    texts = [reading.text for reading in predictor.predict(files, "upright")]
    assert measure(predictor, [Line(file, text) for file, text in zip(files, texts, strict=True)])["cer"] == 0
    plain = measure(RecognitionPredictor(recognizer("crnn")), [Line(file, "a") for file in files])
    assert plain.keys() == found.keys() | {"cer_upside_down"}
    assert plain["same_when_rotated"] == 1
    with raises("image.unreadable"):
        measure(predictor, [Line(folder / "missing.png", "a")])


def test_documents_and_folded_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What transcribers write in different ways counts as an error in one of the rates only."""
    read = iter([["a\u017fa", "l'ai ;", "abcd"]] * 5)
    readings = lambda *args, **options: [Reading(text, 0.9) for text in next(read)]
    predictor = RecognitionPredictor(recognizer())
    monkeypatch.setattr(predictor, "read_lines", readings)
    texts, documents = ("asa", "l\u2019ai;", "abce"), ("b", "a", "b")
    files = sorted(folder.iterdir())[:3]
    found = measure(predictor, [Line(f, t, document=d) for f, t, d in zip(files, texts, documents, strict=True)])
    assert (found["cer"], found["cer_folded"]) == pytest.approx((4 / 12, 1 / 12))
    assert found["documents"] == {
        "a": {"lines": 1, "cer": pytest.approx(2 / 5), "cer_folded": 0},
        "b": {"lines": 2, "cer": pytest.approx(2 / 7), "cer_folded": pytest.approx(1 / 7)},
    }
    assert [*found["documents"]] == ["a", "b"]


def test_a_line_that_is_missing_counts_as_its_characters() -> None:
    """torchmetrics' `edit_distance`, which searches a beam, counts 88 errors instead of 42."""
    lines = Path(__file__).with_name("fr_print_page.txt").read_text(encoding="utf-8").splitlines()[:6]
    scores = text_scores(["\n".join([lines[0], *lines[2:]])], ["\n".join(lines)])
    assert scores.cer == pytest.approx(42 / len("\n".join(lines)))
    assert scores.wer == pytest.approx(len(lines[1].split()) / len(" ".join(lines).split()))
