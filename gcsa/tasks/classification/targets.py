"""What the labels of images are, and what follows from it: one class of several, several labels at once, or numbers.

The kind of a data module is `data.target`; weights files and checkpoints say it as the entry `target`, and without one the
labels are classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_choice, is_number, shown
from gcsa.weights.files import MOST_NAMES


class Target(ABC):
    """What the scores (B, K) of a network mean for labels of one kind.

    Attributes:
        kind: its name in data.target and in weights files.
        losses: the names of the losses that fit; the first is the usual one, which also validates.
    """

    kind: ClassVar[str]
    losses: ClassVar[tuple[str, ...]]

    @abstractmethod
    def answers(self, scores: Tensor) -> Tensor:
        """Scores (B, K) as a user reads them (B, K)."""

    def expected(self, labels: Tensor) -> Tensor:
        """Labels as metrics take them."""
        return labels

    @abstractmethod
    def wanted(self, labels: Tensor, num_classes: int, smoothing: float = 0.0) -> Tensor:
        """Labels as scores of a loss are compared with: (B, K)."""

    def entry(self) -> dict[str, Any]:
        """The entry `target` of weights, for `target_of`: plain values."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class Classes(Target):
    """Labels int64 (B,): one class for each image. Answers are probabilities that sum to 1."""

    kind = "class"
    losses = ("cross_entropy", "bce", "focal")

    def answers(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def wanted(self, labels: Tensor, num_classes: int, smoothing: float = 0.0) -> Tensor:
        return F.one_hot(labels, num_classes) * (1 - smoothing) + smoothing / num_classes


@dataclass(frozen=True)
class Labels(Target):
    """Labels float32 (B, K) of 0 and 1: any number of them for each image. Answers are a probability for each."""

    kind = "multilabel"
    losses = ("bce",)

    def answers(self, scores: Tensor) -> Tensor:
        return scores.sigmoid()

    def expected(self, labels: Tensor) -> Tensor:
        return labels.long()

    def wanted(self, labels: Tensor, num_classes: int, smoothing: float = 0.0) -> Tensor:
        return labels * (1 - smoothing) + smoothing / 2


@dataclass(frozen=True)
class Numbers(Target):
    """Labels float64 (B, K) of numbers in the units of their column, as answers are: float32 rounds a number such as 20240101. The
    network learns them with mean 0 and deviation 1.

    mean, std: (K,) of the training images.
    """

    kind = "regression"
    losses = ("mse",)
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def answers(self, scores: Tensor) -> Tensor:
        wide = scores.double()
        return wide * wide.new_tensor(self.std) + wide.new_tensor(self.mean)

    def wanted(self, labels: Tensor, num_classes: int, smoothing: float = 0.0) -> Tensor:
        labels = labels.double()
        return ((labels - labels.new_tensor(self.mean)) / labels.new_tensor(self.std)).float()

    def entry(self) -> dict[str, Any]:
        return {"kind": self.kind, "mean": list(self.mean), "std": list(self.std)}


TARGETS: dict[str, type[Target]] = {kind.kind: kind for kind in (Classes, Labels, Numbers)}


def target_of(entries: Mapping[str, Any] | None) -> Target:
    """The target that the `entries` of weights, or the preprocessing of a data module, say; classes where they say none.

    Raises UserError for an entry `target` that is damaged.
    """
    entry = (entries or {}).get("target") or Classes().entry()
    if not isinstance(entry, dict):
        raise UserError(f"target={shown(entry)} must be an object of a kind and numbers", "target", entry=entry)
    check_choice("target", entry.get("kind"), TARGETS)
    if entry["kind"] != Numbers.kind:
        return TARGETS[entry["kind"]]()
    scale: list[Any] = [entry.get(key) for key in ("mean", "std")]
    for values in scale:
        if (
            not isinstance(values, list | tuple)
            or len(values) > MOST_NAMES
            or not all(is_number(value, -1e30, 1e30) for value in values)
        ):
            raise UserError("the target regression needs mean and std, a number for each column", "target.scale")
    mean, std = (tuple(values) for values in scale)
    if len(mean) != len(std) or min(std, default=0) <= 0:
        raise UserError("the target regression needs as many positive std as means", "target.std")
    return Numbers(mean, std)
