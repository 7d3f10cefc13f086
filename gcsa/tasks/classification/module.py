"""Classification of images: the Lightning module around any timm model, `gcsa_*` or not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MultilabelAccuracy,
    MultilabelAUROC,
    MultilabelAveragePrecision,
)
from torchmetrics.regression import MeanAbsoluteError, R2Score
from torchvision.transforms import v2

from gcsa._utils.errors import UserError
from gcsa._utils.options import check_options
from gcsa._utils.validation import check_choice
from gcsa.evaluation.metrics import BINS, bin_sums, calibration_error
from gcsa.models.create import create_model
from gcsa.symmetry import Canonical
from gcsa.tasks.classification.losses import (
    LOSSES,
    check_class_weights,
    check_loss,
    class_weights,
    each_loss,
    info_nce,
    view_divergence,
)
from gcsa.tasks.classification.options import ClassificationOptions
from gcsa.tasks.classification.targets import Classes, Labels, Numbers, target_of
from gcsa.training.module import TaskModule
from gcsa.training.pose_loss import pose_loss


class CalibrationError(Metric):
    """The expected calibration error of class probabilities (B, classes), in the bins of `gcsa.evaluation.metrics`."""

    full_state_update = False
    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(3, BINS, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, probabilities: Tensor, labels: Tensor) -> None:
        self.sums += bin_sums(probabilities, labels)

    def compute(self) -> Tensor:
        return calibration_error(self.sums)


METRICS: dict[str, dict[str, tuple[Callable[[int], Metric], str]]] = {
    Classes.kind: {
        "accuracy": (lambda num_classes: MulticlassAccuracy(num_classes, average="micro"), "max"),
        "calibration_error": (lambda num_classes: CalibrationError(), "min"),
    },
    Labels.kind: {
        "accuracy": (lambda num_labels: MultilabelAccuracy(num_labels, average="micro"), "max"),
        "average_precision": (MultilabelAveragePrecision, "max"),
        "auroc": (MultilabelAUROC, "max"),
    },
    Numbers.kind: {
        "mae": (lambda num_columns: MeanAbsoluteError(), "min"),
        "r2": (lambda num_columns: R2Score(), "max"),
    },
}
"""Of each target, what makes each metric for a number of classes or columns, and whether more ("max") or less ("min") is better."""


def register_metric(name: str, make: Callable[[int], Metric], mode: str) -> None:
    """Adds a metric of class probabilities (B, classes) and labels (B,), such as torchmetrics': `make` gets the number of classes.

    It is logged as val/NAME and test/NAME, and `monitor.metric=val/NAME monitor.mode=MODE` chooses the best epoch by it.
    """
    check_choice("mode", mode, ("max", "min"))
    METRICS[Classes.kind][name] = (make, mode)


def build_metrics(num_classes: int, kind: str = Classes.kind) -> dict[str, Metric]:
    """Those in `METRICS` of a target and, for two classes, AUROC, from answers and labels."""
    metrics = {name: make(num_classes) for name, (make, _) in METRICS[kind].items()}
    return metrics | ({"auroc": MulticlassAUROC(2)} if kind == Classes.kind and num_classes == 2 else {})


class Classifier(TaskModule):
    """Trains `model` on batches of images (B, C, H, W), float32, and labels: classes (B,), int64, or another target of
    `preprocessing`.

    Logs {val,test}/loss and the metrics of the target (`METRICS`).

    Args:
        model: `name` and keyword arguments for `create_model`.
        optimizer, schedule, adapter: of `TaskModule`.
        options: of `ClassificationOptions`. `loss` is one of `losses.LOSSES`, that of validation always the usual one of the target;
            `mixup` and `cutmix` (arXiv:1710.09412, arXiv:1905.04899) share the batches where both are given; `consistency` and
            `instance_loss` weigh `view_divergence` and `info_nce`, for batches of two views of each image: first all images, then
            all again.
        preprocessing: that of the data module, with the `target`; a checkpoint takes it along for `gcsa.load`.

    Raises:
        UserError: arguments that cannot work.
    """

    task = "classification"

    def __init__(
        self,
        model: dict[str, Any],
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        num_classes: int,
        in_chans: int,
        options: dict[str, Any] | None = None,
        adapter: dict[str, Any] | None = None,
        preprocessing: dict[str, Any] | None = None,
    ) -> None:
        known = ClassificationOptions(
            **check_options(options or {}, ClassificationOptions, owner="task=classification")
        )
        target = target_of(preprocessing)
        self.loss_name = check_loss(known.loss, target)
        check_class_weights(known.class_weights, num_classes, target)
        if known.compares_views and (known.mixup or known.cutmix):
            raise UserError("consistency and instance_loss compare two views of one image: leave out mixup and cutmix")
        if known.compares_views and known.compile:
            raise UserError(
                "compile=true compiles a network as a whole, which consistency and instance_loss take apart: leave it out"
            )
        network = create_model(num_classes=num_classes, in_chans=in_chans, **model)
        for name in (
            "in_chans",
            "num_features",
            "num_classes",
        ):  # of your own model, whose weights could not be written
            if not hasattr(network, name):
                raise UserError(
                    f"model {model['name']} has no attribute {name}, which timm needs to write its weights: add it"
                )
        if known.compares_views and not hasattr(network, "forward_head"):
            raise UserError(
                f"model {model['name']} has no forward_features and forward_head, as timm's models have, whose features "
                "consistency and instance_loss compare: add them"
            )
        super().__init__(network, partial(build_metrics, num_classes, target.kind), optimizer, schedule, adapter)
        self.target, self.options = target, known
        mixes = ((v2.MixUp, known.mixup), (v2.CutMix, known.cutmix))
        self.mixes = [kind(alpha=alpha, num_classes=num_classes) for kind, alpha in mixes if alpha]
        self.weights: Tensor | None = None  # no buffer: callbacks.ema copies those before they are made

    def setup(self, stage: str) -> None:
        given = self.options.class_weights
        if stage == "fit" and given is not None:
            labels = None
            if given == "auto":
                images = getattr(self.trainer.datamodule, "images", None)  # type: ignore[attr-defined]
                if images is None:
                    raise UserError("class_weights='auto' counts the labels of a data module of gcsa: list the weights")
                labels = images("train").labels
            self.weights = class_weights(given, labels, self.hparams["num_classes"])
        if self.options.compile and self.model._compiled_call_impl is None:
            self.model.compile()

    def training_loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        wanted = self.target.wanted(labels, self.hparams["num_classes"], self.options.label_smoothing)
        if self.mixes:
            images, wanted = self.mixes[int(torch.randint(len(self.mixes), ()))](images, wanted)
        weights = None if self.weights is None else self.weights.to(wanted)
        if self.options.compares_views:
            maps = self.model.forward_features(images)
            scores = self.model.forward_head(maps)
            loss = LOSSES[self.loss_name](scores, wanted, weights)
            loss = loss + self.options.consistency * view_divergence(scores)
            loss = loss + self.options.instance_loss * info_nce(self.model.forward_head(maps, pre_logits=True))
        else:
            loss = LOSSES[self.loss_name](self(images), wanted, weights)
        if isinstance(self.model, Canonical) and isinstance(self.model.chooser, nn.Module):
            loss = loss + pose_loss(self.model, images, partial(each_loss, self.loss_name, wanted))
        return loss

    def evaluate_batch(self, batch: tuple[Tensor, Tensor], stage: str) -> None:
        images, labels = batch
        scores = self(images).float()
        self.update_metrics(stage, self.target.answers(scores), self.target.expected(labels))
        loss = LOSSES[self.target.losses[0]](scores, self.target.wanted(labels, scores.shape[1]), None)
        self.log(f"{stage}/loss", loss, batch_size=len(labels), sync_dist=True)
