"""Losses of classifiers, by name; `register_loss` adds one of your own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_choice, is_number, shown
from gcsa.data.splits import balancing_weights
from gcsa.tasks.classification.targets import Classes, Target

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Scores (B, K), targets (B, K) as `Target.wanted` gives them, and a weight for each column (K,) or None, to a mean of shape ()."""
FOCUS = 2.0
"""The gamma of the focal loss, as in its paper."""
TEMPERATURE = 0.1
"""Of `info_nce`, on cosines."""


def cross_entropy(logits: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """The usual one. With weights, a mean weighted by those of the targets' classes."""
    losses = -targets * logits.log_softmax(1)
    return _mean(losses, targets, weight)


def bce(logits: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """Each class against the others (ResNet strikes back, Wightman et al. 2021, arXiv:2110.00476), the mean over classes."""
    return F.binary_cross_entropy_with_logits(logits, targets, weight)


def focal(logits: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """Less for images that are told with confidence (Lin et al. 2017, arXiv:1708.02002)."""
    log_probabilities = logits.log_softmax(1)
    losses = -targets * (1 - log_probabilities.exp()) ** FOCUS * log_probabilities
    return _mean(losses, targets, weight)


def _mean(losses: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """Of losses (B, K) over the images, weighted by the classes of their targets."""
    if weight is None:
        return losses.sum(1).mean()
    return (losses * weight).sum() / (targets * weight).sum()


def mse(scores: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """The squared difference, the mean over columns."""
    squares = (scores - targets).square()
    return squares.mean() if weight is None else (squares * weight).mean()


def view_divergence(logits: Tensor) -> Tensor:
    """How unlike the answers for two views of each image are: Jeffreys' divergence of their probabilities, mean over images.

    `logits` (2 B, K): first those of the first views, then of the second, in the same order.
    """
    first, second = logits.float().log_softmax(1).chunk(2)
    return ((first.exp() - second.exp()) * (first - second)).sum(1).mean()


def info_nce(features: Tensor) -> Tensor:
    """The cross-entropy of finding, by its features, the other view of an image among those of the whole batch (InfoNCE,
    van den Oord et al. 2018, arXiv:1807.03748).

    `features` (2 B, C): first those of the first views, then of the second, in the same order.
    """
    first, second = F.normalize(features.float(), dim=1).chunk(2)
    likeness = first @ second.T / TEMPERATURE
    own = torch.arange(len(first), device=features.device)
    return (F.cross_entropy(likeness, own) + F.cross_entropy(likeness.T, own)) / 2


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "bce": bce, "focal": focal, "mse": mse}
BUILT_IN = tuple(LOSSES)


def register_loss(name: str, loss: Loss) -> None:
    """Makes `loss` known as `loss=NAME`."""
    LOSSES[name] = loss


def each_loss(name: str, targets: Tensor, scores: Tensor) -> Tensor:
    """The loss (B,) of each image by itself, from targets and scores (B, K)."""
    return torch.stack([LOSSES[name](*pair, None) for pair in zip(scores.split(1), targets.split(1), strict=True)])


def check_loss(name: object, target: Target) -> str:
    """The name of the loss: None is the usual one of `target`. Raises UserError for one that is unknown or does not fit."""
    if name is None:
        return target.losses[0]
    known = [loss for loss in LOSSES if loss in target.losses or loss not in BUILT_IN]
    check_choice("loss", name, known)
    return str(name)


def check_class_weights(weights: object, num_classes: int, target: Target) -> None:
    """Raises UserError for anything but null, "auto" of classes, and a positive number for each class or column."""
    if weights is None or (weights == "auto" and isinstance(target, Classes)):
        return
    if weights == "auto":
        raise UserError(
            f"class_weights=auto counts the images of each class, and data.target={target.kind} has none: leave it out, or list "
            "the weights",
            "class_weights.classes",
        )
    if not isinstance(weights, list | tuple) or not all(is_number(weight) and weight > 0 for weight in weights):
        raise UserError(
            f"class_weights={shown(weights)} must be null, auto, or a list of positive numbers such as [1,4]",
            "class_weights",
        )
    if len(weights) != num_classes:
        raise UserError(
            f"class_weights={shown(weights)} has {len(weights)} numbers, but the data have {num_classes} classes",
            "class_weights.count",
        )


def class_weights(weights: Sequence[float] | str, labels: Tensor | None, num_classes: int) -> Tensor:
    """The weights (K,) that `class_weights=` names; "auto" needs the labels of the training images."""
    return torch.tensor(weights) if labels is None else balancing_weights(labels, num_classes)
