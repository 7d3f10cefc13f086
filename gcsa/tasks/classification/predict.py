"""A trained classifier as `gcsa.load` gives it: class scores and features of images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int
from gcsa.evaluation.audited import Audited, AuditOptions, Progress, silent
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.images.prepare import Prepare
from gcsa.models.backbone import Backbone
from gcsa.models.create import classifier_names, create_model
from gcsa.symmetry import RotationAveraged, Symmetrized
from gcsa.tasks.base import Predictor, merge_adapter
from gcsa.tasks.classification.targets import Classes, Labels, Numbers, Target, target_of
from gcsa.tasks.ood import OODScorer, image_statistics, reduced_outputs
from gcsa.weights import Weights, fill, read_adapter
from gcsa.weights.fingerprint import is_within
from gcsa.weights.writer import BORDER


@dataclass(frozen=True)
class Classification:
    """The most probable class, its probability, the probability of every class by its name, and the OOD score: above 1, the image is
    unlike those of training; None where the weights do not tell (`gcsa.tasks.ood`)."""

    label: str
    confidence: float
    scores: dict[str, float]
    ood_score: float | None = None


@dataclass(frozen=True)
class Multilabel:
    """The labels of probability 0.5 and more, the probability of every label by its name, and the OOD score as of `Classification`."""

    labels: tuple[str, ...]
    scores: dict[str, float]
    ood_score: float | None = None


@dataclass(frozen=True)
class Regression:
    """The number of every column by its name, in the column's units, and the OOD score as of `Classification`."""

    values: dict[str, float]
    ood_score: float | None = None


class PreLogits(nn.Module):
    """A timm classifier without its last layer: normalised images (B, C, H, W) to features (B, D).

    Raises UserError for a network that gives a map instead of a row of features.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        features = self.network.forward_head(self.network.forward_features(images), pre_logits=True)  # type: ignore[operator]
        if features.ndim != 2:
            raise UserError(
                f"the network gives a map of {tuple(features.shape[1:])}, not a row of features: pool it", "network.map"
            )
        return features


class RowsAndFeatures(nn.Module):
    """A classifier of gcsa, or `PreLogits` of one, in one pass: normalised images (B, C, H, W) to its rows and, behind them, what the OOD score
    looks at (B, K + D): `image_statistics`, and the means of the outputs (B, h, w, N, C) of the stem and of every stage over positions and
    group."""

    def __init__(self, rows: nn.Module) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, images: Tensor) -> Tensor:
        network: Any = self.rows.network if isinstance(self.rows, PreLogits) else self.rows
        with reduced_outputs((network.stem, *network.stages), lambda _, output: output.mean((1, 2, 3))) as means:
            rows = self.rows(images)
        return torch.cat([rows, image_statistics(images).to(rows), *(mean.to(rows) for mean in means)], 1)


class WithOODScore(nn.Module):
    """Normalised images (B, C, H, W) to rows and, behind them, the OOD score of each image, (B, K + 1).

    both: gives rows and features, (B, K + D).
    """

    def __init__(self, both: nn.Module, length: int, scorer: OODScorer) -> None:
        super().__init__()
        self.both, self.length, self.ood_scorer = both, length, scorer

    def forward(self, images: Tensor) -> Tensor:
        both = self.both(images)
        rows, features = both[:, : self.length], both[:, self.length :]
        return torch.cat([rows, self.ood_scorer(features).to(rows)[:, None]], 1)


class RowPredictor(Predictor):
    """A predictor whose network gives a row of numbers for each image that `preprocess` made."""

    preprocess: Prepare

    def audit(
        self,
        images: Sequence[Path],
        options: AuditOptions,
        network: nn.Module | None = None,
        progress: Progress = silent,
    ) -> Audited:
        from gcsa.tasks.classification.audit import audit, network_of

        return audit(network or network_of(self, options), self.preprocess, images, options, progress)


class ClassificationPredictor(RowPredictor):
    """A timm classifier with its preprocessing and the names of its classes.

    Scores and features do not change when an image rotates by an element of `group` that maps the pixel grid onto itself.

    Args:
        network: a timm model; normalised images (B, C, size, size) to class scores (B, classes).
        preprocess: makes an image an input of `network`.
        class_names: of classes, labels or columns of numbers; by default "0", "1", ...
        target: what the scores are; by default of classes.

    Raises:
        UserError: a network that does not take the images that `preprocess` gives.
    """

    kind = "classification"
    network: Any

    def __init__(
        self,
        network: nn.Module,
        preprocess: Prepare,
        class_names: Sequence[str] | None = None,
        target: Target | None = None,
    ) -> None:
        super().__init__(network, preprocess)
        self.target = target or Classes()
        channels = getattr(network, "in_chans", len(preprocess.mean))
        if channels != len(preprocess.mean):
            raise UserError(
                f"the network takes {channels} channels, but images of {len(preprocess.mean)} are prepared",
                "network.channels",
            )
        check_input_size = getattr(network, "check_input_size", None)
        if callable(check_input_size):
            check_input_size(preprocess.size, preprocess.size)
        classes = int(self.network.num_classes)
        self.class_names = tuple(class_names or map(str, range(classes)))
        if len(self.class_names) != classes:
            raise UserError(
                f"the network has {classes} classes, but {len(self.class_names)} class names are given",
                "network.classes",
            )

    @property
    def embedding(self) -> nn.Module:
        """The network without its last layer: prepared images (B, C, size, size) to features (B, D)."""
        return _within(self.network, PreLogits).eval()

    def with_ood_scores(self, network: nn.Module | None = None) -> nn.Module:
        """The network, or `network`, which is the same or its `embedding`, also made exact: prepared images (B, C, size, size) to its rows and,
        where the weights say what training images are like, the OOD score behind them, (B, K) or (B, K + 1)."""
        network = self.network if network is None else network
        both = None if self.ood_scorer is None else with_features(network)
        if both is None or self.ood_scorer is None:
            return network
        embedded = isinstance(_innermost(network), PreLogits)
        length = self.network.head_hidden_size if embedded else len(self.class_names)
        return WithOODScore(both, length, self.ood_scorer)

    def answers(self, rows: Tensor) -> tuple[Tensor, list[float | None]]:
        """What `with_ood_scores` gave (N, K) or (N, K + 1): answers (N, K), and the OOD score of each image."""
        count = len(self.class_names)
        ood_scores: list[float | None] = [None] * len(rows) if self.ood_scorer is None else rows[:, count].tolist()
        return self.target.answers(rows[:, :count]), ood_scores

    def predict(self, images: Any, batch_size: int = 32) -> Any:
        """The `Classification`, `Multilabel` or `Regression` of an image, as the weights were trained; a list for several images.

        Args:
            images: an image as `gcsa.images.prepare.to_image` takes it; or a list, an array or a tensor of several.
            batch_size: images that the network sees at once.

        Raises:
            UserError: an image that cannot be read, naming it; an encoder, which has no classes.
        """
        if not self.class_names:
            raise UserError("the network is an encoder, which has no classes: ask for its features", "network.encoder")
        rows = run_batches(self.with_ood_scores(), self.preprocess, images, batch_size)
        answers, ood_scores = self.answers(rows if rows.ndim == 2 else rows[None])
        named = [self._named(row, ood_score) for row, ood_score in zip(answers.tolist(), ood_scores, strict=True)]
        return named if _is_several(images) else named[0]

    def features(self, images: Any, batch_size: int = 32) -> Tensor:
        """The features of the images in front of the last layer: (D,) of one, (N, D) of several; as `predict`."""
        return run_batches(self.embedding, self.preprocess, images, batch_size)

    def describe(self) -> dict[str, Any]:
        prepare = self.preprocess
        values = {"names": self.class_names, "target": self.target.kind, "size": prepare.size}
        return super().describe() | values | {"mean": prepare.mean, "std": prepare.std}

    def exported(self) -> nn.Module:
        """Of numbers, a copy of the network that gives them in the units of their columns."""
        if not isinstance(self.target, Numbers):
            return self.network
        network = copy.deepcopy(self.network)
        heads = classifier_names(network)
        if not heads:
            raise UserError(
                "the network has no get_classifier(), whose outputs would be brought to their units: add it",
                "network.get_classifier",
            )
        for name in heads:
            head: Any = network.get_submodule(name)
            with torch.no_grad():
                std, mean = (head.weight.new_tensor(values) for values in (self.target.std, self.target.mean))
                bias = mean if head.bias is None else head.bias * std + mean
                head.weight.mul_(std.view(-1, *[1] * (head.weight.ndim - 1)))
                head.bias = nn.Parameter(bias)
        return network

    def _named(self, answers: list[float], ood_score: float | None) -> Classification | Multilabel | Regression:
        scores = dict(zip(self.class_names, answers, strict=True))
        if isinstance(self.target, Numbers):
            return Regression(scores, ood_score)
        if isinstance(self.target, Labels):
            return Multilabel(tuple(name for name, value in scores.items() if value >= 0.5), scores, ood_score)
        label = max(scores, key=scores.__getitem__)
        return Classification(label, scores[label], scores, ood_score)


def run_batches(network: nn.Module, prepare: Prepare, images: Any, batch_size: int) -> Tensor:
    """What `network` gives for an image, or for each of several, in batches."""
    check_int("batch_size", batch_size, 1)
    several = list(images) if _is_several(images) else [images]
    if not several:
        raise UserError("there are no images: give one or more", "images.none")
    rows = []
    with evaluation_mode(network) as device:
        for start in range(0, len(several), batch_size):
            batch = torch.stack([prepare(image) for image in several[start : start + batch_size]])
            rows.append(network(batch.to(device)).float().cpu())
    return torch.cat(rows) if _is_several(images) else rows[0][0]


def with_features(network: nn.Module) -> nn.Module | None:
    """`RowsAndFeatures` of a classifier or its `PreLogits`, in the wrappers of one that was made exact; None for networks of others."""
    inner = _innermost(network)
    inner = inner.network if isinstance(inner, PreLogits) else inner
    return _within(network, RowsAndFeatures) if isinstance(inner, Backbone) else None


def _innermost(network: nn.Module) -> nn.Module:
    """A network without the wrappers that made it exact."""
    while isinstance(network, Symmetrized | RotationAveraged):
        network = network.network
    return network


def _within(network: nn.Module, change: Callable[[Any], nn.Module]) -> nn.Module:
    """`change` of a network, in the wrappers of one that was made exact."""
    if isinstance(network, Symmetrized | RotationAveraged):
        return network.around(_within(network.network, change))
    return change(network)


def make_predictor(weights: Weights, adapter: str | Path | None = None) -> ClassificationPredictor:
    """The classifier of `weights`, with `adapter` merged. Raises UserError for weights that do not say how images are
    prepared, and for an adapter of another model."""
    prepare = Prepare.from_weights(weights.source, {**weights.entries, **weights.preprocessing})
    target, ood_scorer = target_of(weights.entries), OODScorer.of(weights)
    network: Any = fill(lambda: create_model(weights.architecture, **weights.options), weights)
    # timm's nearest way to a whole image in a square has a border in the mean colour.
    border = BORDER if prepare.pad else {}
    vars(network)["pretrained_cfg"] = {**vars(network).get("pretrained_cfg", {}), **weights.preprocessing, **border}
    names = weights.preprocessing.get("label_names")
    if isinstance(target, Numbers) and len(target.mean) != network.num_classes:
        raise UserError(
            f"{weights.source} has {network.num_classes} outputs, but the scale of {len(target.mean)}: it is damaged",
            "weights.target",
        )
    if adapter is not None:
        if not isinstance(target, Classes):
            raise UserError(
                f"{weights.source} was trained for target={target.kind}: an adapter needs a base of classes",
                "adapter.target",
            )
        network, names = _adapted(network, adapter, names)
    predictor = ClassificationPredictor(network, prepare, names, target)
    if adapter is None and with_features(network) is not None:  # with an adapter, training images have other features
        predictor.ood_scorer = ood_scorer
    return predictor


def _adapted(network: Any, adapter: str | Path, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """`network` of classes `names` with the adapter merged, and the names of the classes that it then tells apart: those that
    the adapter names, and where it does not, `names`, or none where it has a classifier of its own."""
    stored = read_adapter(adapter)
    heads = classifier_names(network)
    has_own = any(is_within(head, stored.config.get("modules_to_save", ())) for head in heads)
    names = stored.label_names or (None if has_own else names)
    if has_own:
        rows = [
            len(stored.tensors[key]) for head in heads if (key := f"base_model.model.{head}.weight") in stored.tensors
        ]
        if rows and rows[0] != network.num_classes:
            network.reset_classifier(rows[0])
    return merge_adapter(network, adapter), names


def _is_several(images: Any) -> bool:
    """Whether these are several images: a list or tuple, or an array or tensor of four axes."""
    return isinstance(images, list | tuple) or (isinstance(images, Tensor | np.ndarray) and images.ndim == 4)
