"""How good class scores are: accuracy with its interval, AUROC, calibration, and the worst mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from scipy.stats import binomtest
from torch import Tensor, nn
from torchmetrics.functional.classification import binary_auroc

from gcsa._utils.errors import UserError
from gcsa.evaluation.evaluation_mode import evaluation_mode

BINS = 15
"""Of equal width, for the calibration error (Guo et al. 2017, arXiv:1706.04599). Each holds its upper end."""


@dataclass(frozen=True)
class Scores:
    """Fractions between 0 and 1: `interval` is the 95 % Wilson interval of the accuracy (Wilson 1927,
    doi:10.1080/01621459.1927.10502953), `auroc` is None unless two classes occur."""

    images: int
    accuracy: float
    interval: tuple[float, float]
    auroc: float | None
    calibration_error: float


@dataclass(frozen=True)
class Reliability:
    """Answers by the probability of the chosen class, the lowest bin first, without empty bins: the number of images in a
    bin, the mean of their probabilities, and their accuracy."""

    images: tuple[int, ...]
    probability: tuple[float, ...]
    accuracy: tuple[float, ...]


@dataclass(frozen=True)
class Mistake:
    """An image of class `label` and the class that it was `taken_for`, with the probability of that class; `image` counts
    from 0 in the order of the sample."""

    image: int
    label: int
    taken_for: int
    probability: float


def score(logits: Tensor, labels: Tensor) -> Scores:
    """Scores of logits (M, classes) for labels (M,).

    Raises ValueError where logits are not finite.
    """
    if bad := int((~logits.isfinite()).any(1).sum()):
        raise UserError(
            f"the model gives NaN or infinite scores for {bad} of {len(logits)} images", "scores.not_finite", bad=bad
        )
    correct = int((logits.argmax(1) == labels).sum())
    interval = binomtest(correct, len(labels)).proportion_ci(method="wilson")
    both = logits.shape[1] == 2 and len(labels.unique()) == 2
    auroc = binary_auroc(ranks(logits), labels).item() if both else None
    error = calibration_error(bin_sums(logits.float().softmax(1), labels)).item()
    return Scores(len(labels), correct / len(labels), (float(interval.low), float(interval.high)), auroc, error)


def ranks(logits: Tensor) -> Tensor:
    """Float64 (M,) from 0 to 1: the order of the second class's probability by logits (M, 2). The probabilities of confident
    models are rounded to 1 and would be ties."""
    margins = logits.double() @ torch.tensor([-1.0, 1.0], dtype=torch.float64, device=logits.device)
    ordered = margins.unique(return_inverse=True)[1].double()
    return ordered / ordered.max().clamp_min(1)


def bin_sums(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Float64 (3, BINS) of class probabilities (M, classes) for labels (M,): in each bin of the probability of the chosen
    class, the number of images, the sum of these probabilities, and the number of right answers."""
    confidence, classes = probabilities.double().max(1)
    bins = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    rows = torch.stack([torch.ones_like(confidence), confidence, (classes == labels).double()])
    return rows.new_zeros(3, BINS).index_add_(1, bins, rows)


def calibration_error(sums: Tensor) -> Tensor:
    """The expected calibration error, a scalar, by `bin_sums`."""
    images, probability, right = sums
    return (probability - right).abs().sum() / images.sum()


def reliability(logits: Tensor, labels: Tensor) -> Reliability:
    """How often logits (M, classes) are right about labels (M,), in the bins of the calibration error."""
    sums = bin_sums(logits.float().softmax(1), labels)
    images, probability, right = sums[:, sums[0] > 0]
    count = tuple(images.long().tolist())
    return Reliability(count, tuple((probability / images).tolist()), tuple((right / images).tolist()))


def worst_mistakes(logits: Tensor, labels: Tensor, most: int = 12) -> list[Mistake]:
    """The wrong answers of logits (M, classes) for labels (M,) with the largest probabilities: at most `most`, the worst
    first."""
    probabilities, classes = logits.float().softmax(1).max(1)
    wrong = (classes != labels).nonzero().flatten()
    worst = wrong[probabilities[wrong].argsort(descending=True, stable=True)][:most]
    return [Mistake(i, int(labels[i]), int(classes[i]), probabilities[i].item()) for i in worst.tolist()]


def predict(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Logits (M, classes) and labels (M,), on the CPU, of all batches (images (B, C, H, W), labels (B,))."""
    with evaluation_mode(model) as device:
        pairs = [(model(images.to(device)).cpu(), labels) for images, labels in batches]
    logits, labels = zip(*pairs, strict=True)
    return torch.cat(logits), torch.cat(labels)
