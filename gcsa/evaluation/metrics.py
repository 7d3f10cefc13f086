"""How good class scores are: accuracy with its interval, AUROC and calibration error (the latter two from torchmetrics), how
often answers of each probability are right, and where they are most wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchmetrics.functional.classification import binary_auroc, multiclass_calibration_error

from gcsa._utils.errors import UserError
from gcsa.evaluation.measuring import measuring

BINS = 15


@dataclass(frozen=True)
class Scores:
    """Fractions between 0 and 1: `interval` holds the accuracy at 95 %, `auroc` is None unless two classes occur."""

    images: int
    accuracy: float
    interval: tuple[float, float]
    auroc: float | None
    calibration_error: float


@dataclass(frozen=True)
class Reliability:
    """For each bin of the probabilities of the chosen classes that holds images, the lowest first: how many these are, and
    the means of their probability and of their accuracy."""

    images: tuple[int, ...]
    probability: tuple[float, ...]
    accuracy: tuple[float, ...]


@dataclass(frozen=True)
class Mistake:
    """An image that was not taken for its class `label`, and the probability of the class that it was `taken_for`; `image`
    counts from 0 in the order of the sample."""

    image: int
    label: int
    taken_for: int
    probability: float


def wilson_interval(correct: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a proportion, by default at 95 % (Wilson 1927, doi:10.1080/01621459.1927.10502953).

    Raises ValueError unless 0 <= correct <= total and total >= 1.
    """
    if not 0 <= correct <= total or total < 1:
        raise UserError(f"{correct} correct of {total} is not a proportion: use 0 <= correct <= total and total >= 1")
    share, spread = correct / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / total / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def score(logits: Tensor, labels: Tensor) -> Scores:
    """Scores of logits (M, classes) for labels (M,); calibration is the expected calibration error over 15 bins of equal
    width (Guo et al. 2017, arXiv:1706.04599).

    Raises ValueError where logits are not finite.
    """
    if bad := int((~logits.isfinite()).any(1).sum()):
        raise UserError(f"the model gives NaN or infinite scores for {bad} of {len(logits)} images")
    classes = logits.shape[1]
    probabilities = logits.float().softmax(1)
    correct = int((logits.argmax(1) == labels).sum())
    both = classes == 2 and len(labels.unique()) == 2
    auroc = binary_auroc(ranks(logits), labels).item() if both else None
    error = multiclass_calibration_error(probabilities, labels, classes, n_bins=BINS)
    return Scores(len(labels), correct / len(labels), wilson_interval(correct, len(labels)), auroc, error.item())


def ranks(logits: Tensor) -> Tensor:
    """Float64 (M,) from 0 to 1: the order of the second class's probability by logits (M, 2), where probabilities of confident
    models are rounded to 1 and level."""
    margins = logits.double() @ torch.tensor([-1.0, 1.0], dtype=torch.float64, device=logits.device)
    places = margins.unique(return_inverse=True)[1].double()
    return places / places.max().clamp_min(1)


def reliability(logits: Tensor, labels: Tensor) -> Reliability:
    """How often logits (M, classes) are right about labels (M,), in the bins of the calibration error (Guo et al. 2017,
    arXiv:1706.04599)."""
    probabilities, classes = logits.float().softmax(1).max(1)
    right = (classes == labels).float()
    bins = (probabilities * BINS).ceil().long() - 1  # each with its upper end
    filled = [bins == index for index in bins.unique().tolist()]
    return Reliability(
        images=tuple(int(rows.sum()) for rows in filled),
        probability=tuple(probabilities[rows].mean().item() for rows in filled),
        accuracy=tuple(right[rows].mean().item() for rows in filled),
    )


def worst_mistakes(logits: Tensor, labels: Tensor, most: int = 12) -> list[Mistake]:
    """Of the images with logits (M, classes) that are not of the class with the largest, those where it is most probable:
    at most this many, the worst first."""
    probabilities, classes = logits.float().softmax(1).max(1)
    wrong = (classes != labels).nonzero().flatten()
    worst = wrong[probabilities[wrong].argsort(descending=True, stable=True)][:most]
    return [Mistake(i, int(labels[i]), int(classes[i]), probabilities[i].item()) for i in worst.tolist()]


def predict(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Logits (M, classes) and labels (M,), on the CPU, of all batches (images (B, C, H, W), labels (B,))."""
    with measuring(model) as device:
        pairs = [(model(images.to(device)).cpu(), labels) for images, labels in batches]
    logits, labels = zip(*pairs, strict=True)
    return torch.cat(logits), torch.cat(labels)
