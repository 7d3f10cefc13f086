import pytest
import torch
from torch import nn
from torchmetrics.functional.classification import binary_auroc, multiclass_calibration_error

from gcsa.evaluation.metrics import predict, reliability, score, worst_mistakes
from tests.errors import raises


@pytest.mark.parametrize(
    ("correct", "total", "interval"),
    [(8, 10, (0.4902, 0.9433)), (0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (500, 1000, (0.4691, 0.5309))],
)
def test_the_interval_has_the_values_of_wilson(correct, total, interval):
    labels = (torch.arange(total) < correct).long()
    scores = score(torch.tensor([[0.0, 1.0]]).expand(total, 2), labels)
    assert scores.accuracy == correct / total
    assert scores.interval == pytest.approx(interval, abs=1e-4)


def test_calibration_has_one_binning_also_where_probabilities_are_one():
    """Three certain answers, two of them right, share the last bin with one of probability 0.95."""
    logits = torch.tensor([[0.0, 50.0]] * 3 + [[0.0, 3.0], [0.1, 0.0]])
    labels = torch.tensor([1, 1, 0, 1, 0])
    bins = reliability(logits, labels)
    assert bins.images == (1, 4)
    confident = (3 + torch.tensor(3.0).sigmoid().item()) / 4
    assert bins.probability == pytest.approx((torch.tensor(0.1).sigmoid().item(), confident))
    assert bins.accuracy == pytest.approx((1.0, 0.75))
    rows = zip(bins.images, bins.probability, bins.accuracy, strict=True)
    expected = sum(images * abs(probability - accuracy) for images, probability, accuracy in rows) / 5
    assert score(logits, labels).calibration_error == pytest.approx(expected, abs=1e-6)


def test_calibration_error_is_that_of_torchmetrics_below_a_probability_of_one():
    logits, labels = 3 * torch.randn(200, 3), torch.randint(3, (200,))
    expected = multiclass_calibration_error(logits.softmax(1), labels, 3, n_bins=15)
    assert score(logits, labels).calibration_error == pytest.approx(expected.item(), abs=1e-5)


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
    assert (first.image, first.label, first.taken_for, second.image) == (3, 0, 1, 0)
    assert first.probability == pytest.approx(torch.tensor(2.0).sigmoid().item())
    assert worst_mistakes(logits, labels, most=1) == [first]
    assert worst_mistakes(logits, logits.argmax(1)) == []


def test_scores_that_are_not_finite_are_refused():
    logits = torch.zeros(5, 2)
    logits[3, 0] = float("nan")
    with raises("scores.not_finite", bad=1):
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
