import pytest
import torch
from torch import nn
from torchmetrics.functional.classification import binary_auroc

from gcsa.evaluation import predict, reliability, score, wilson_interval, worst_mistakes


@pytest.mark.parametrize(
    ("correct", "total", "interval"),
    [(8, 10, (0.4902, 0.9433)), (0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (500, 1000, (0.4691, 0.5309))],
)
def test_wilson_interval_has_the_published_values(correct, total, interval):
    assert wilson_interval(correct, total) == pytest.approx(interval, abs=1e-4)


@pytest.mark.parametrize(("correct", "total"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_interval_refuses_what_is_no_proportion(correct, total):
    with pytest.raises(ValueError, match=f"{correct} correct of {total}"):
        wilson_interval(correct, total)


def test_scores_of_two_classes():
    logits = torch.tensor([[0.0, 2.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.5]])
    scores = score(logits, torch.tensor([1, 0, 0, 1]))
    assert scores.accuracy == 0.75
    assert scores.auroc == 0.75  # of the four pairs one is in the wrong order
    assert scores.interval == wilson_interval(3, 4)


def test_calibration_error_of_certain_answers_is_the_share_of_wrong_ones():
    logits = torch.tensor([[50.0, 0, 0]] * 4)
    assert score(logits, torch.tensor([0, 0, 0, 1])).calibration_error == pytest.approx(0.25, abs=1e-5)


def test_reliability_has_the_bins_that_hold_images():
    logits = torch.tensor([[0.0, 50.0]] * 3 + [[0.1, 0.0]])
    bins = reliability(logits, torch.tensor([1, 1, 0, 0]))
    assert bins.images == (1, 3)
    assert bins.probability == pytest.approx((torch.tensor(0.1).sigmoid().item(), 1.0))
    assert bins.accuracy == pytest.approx((1.0, 2 / 3))


def test_reliability_and_the_calibration_error_agree():
    logits, labels = 3 * torch.randn(200, 3), torch.randint(3, (200,))
    bins = reliability(logits, labels)
    assert sum(bins.images) == 200
    rows = zip(bins.images, bins.probability, bins.accuracy, strict=True)
    apart = sum(images * abs(probability - accuracy) for images, probability, accuracy in rows)
    assert apart / 200 == pytest.approx(score(logits, labels).calibration_error, abs=1e-5)


@pytest.mark.parametrize("scale", [1.0, 40.0, 1000.0])
def test_auroc_of_confident_answers(scale):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (500,), generator=generator)
    logits = torch.randn(500, 2, generator=generator)
    logits[:, 1] += labels
    expected = binary_auroc((logits[:, 1] - logits[:, 0]).sigmoid(), labels).item()
    assert score(scale * logits, labels).auroc == pytest.approx(expected, abs=1e-6)


def test_auroc_needs_two_classes_that_occur():
    assert score(torch.randn(4, 3), torch.tensor([0, 1, 0, 1])).auroc is None
    assert score(torch.randn(4, 2), torch.zeros(4, dtype=torch.int64)).auroc is None


def test_the_worst_mistakes_are_the_most_certain_ones():
    logits = torch.tensor([[0.0, 1.0], [3.0, 0.0], [0.0, 5.0], [0.0, 2.0]])
    labels = torch.tensor([0, 0, 1, 0])
    first, second = worst_mistakes(logits, labels)
    assert (first.image, first.label, first.taken_for) == (3, 0, 1)
    assert first.probability == pytest.approx(torch.tensor(2.0).sigmoid().item())
    assert second.image == 0
    assert worst_mistakes(logits, labels, most=1) == [first]
    assert worst_mistakes(logits, logits.argmax(1)) == []


def test_scores_that_are_not_finite_are_refused():
    logits = torch.zeros(5, 2)
    logits[3, 0] = float("nan")
    with pytest.raises(ValueError, match="scores for 1 of 5 images"):
        score(logits, torch.zeros(5, dtype=torch.int64))


def test_predict_runs_in_eval_mode_and_gives_the_modes_back():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Dropout(0.9))
    model[0].eval()
    images, labels = torch.randn(6, 1, 2, 2), torch.arange(6) % 2
    logits, predicted_labels = predict(model, [(images[:4], labels[:4]), (images[4:], labels[4:])])
    assert torch.allclose(logits, model[1](images.flatten(1)), atol=1e-6)
    assert not logits.requires_grad
    assert torch.equal(predicted_labels, labels)
    assert [module.training for module in model.modules()] == [True, False, True, True]
