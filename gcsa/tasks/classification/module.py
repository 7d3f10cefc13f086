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
)
from torchmetrics.regression import MeanAbsoluteError, R2Score
from torchvision.transforms import v2

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_choice
from gcsa.evaluation.metrics import BINS, bin_sums, calibration_error
from gcsa.models.create import create_model
from gcsa.symmetry import Canonical
from gcsa.tasks.classification.columns import RANKINGS, mean_of_columns, ranked
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
from gcsa.tasks.classification.teacher import feature_loss, score_loss
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
        **{name: (partial(mean_of_columns, make), "max") for name, make in RANKINGS.items()},
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
        teacher_width: what a teacher's answers for an image are, if `options.teacher` names one: scores of all classes, or features.
            With features the network has no classes, and is an encoder.
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
        teacher_width: int = 0,
        adapter: dict[str, Any] | None = None,
        preprocessing: dict[str, Any] | None = None,
    ) -> None:
        known = ClassificationOptions.from_config(options or {})
        target = target_of(preprocessing)
        self.loss_name = check_loss(known.loss, target)
        check_class_weights(known.class_weights, num_classes, target)
        if known.compares_views and (known.mixup or known.cutmix):
            raise UserError(
                "consistency and instance_loss compare two views of one image: leave out mixup and cutmix",
                "mixup.views",
            )
        if known.teacher.sources and (known.mixup or known.cutmix):
            raise UserError("task.teacher answers for whole images: leave out mixup and cutmix", "mixup.teacher")
        if (known.compares_views or known.makes_encoder) and known.compile:
            raise UserError(
                "compile=true compiles a network as a whole, which consistency, instance_loss and a teacher of features take apart: "
                "leave it out",
                "compile.views",
            )
        network = create_model(num_classes=0 if known.makes_encoder else num_classes, in_chans=in_chans, **model)
        for name in (
            "in_chans",
            "num_features",
            "num_classes",
        ):  # of your own model, whose weights could not be written
            if not hasattr(network, name):
                raise UserError(
                    f"model {model['name']} has no attribute {name}, which timm needs to write its weights: add it",
                    "model.attribute",
                )
        if (known.compares_views or known.makes_encoder) and not hasattr(network, "forward_head"):
            raise UserError(
                f"model {model['name']} has no forward_features and forward_head, as timm's models have, whose features "
                "consistency and instance_loss compare: add them",
                "model.features",
            )
        metrics = dict if known.makes_encoder else partial(build_metrics, num_classes, target.kind)
        super().__init__(network, metrics, optimizer, schedule, adapter)
        if known.makes_encoder:  # an answer is compared behind two layers, which are not kept
            width: Any = network.head_hidden_size
            self.beside = nn.Sequential(
                nn.Linear(width, teacher_width), nn.GELU(), nn.Linear(teacher_width, teacher_width)
            )
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
                    raise UserError(
                        "class_weights='auto' counts the labels of a data module of gcsa: list the weights",
                        "class_weights.auto",
                    )
                labels = images("train").labels
            self.weights = class_weights(given, labels, self.hparams["num_classes"])
        if stage == "fit":
            self._check_monitor()
        if self.options.compile and self.model._compiled_call_impl is None:
            self.model.compile()

    def _check_monitor(self) -> None:
        """Raises UserError where the epoch is to be chosen by how well images are ranked, and the validation images cannot be."""
        images = getattr(self.trainer.datamodule, "images", None)  # type: ignore[attr-defined]
        monitors = {getattr(callback, "monitor", None) for callback in self.trainer.checkpoint_callbacks}
        for name in monitors & {"val/auroc", "val/average_precision"}:
            if images is not None and not bool(ranked(images("val").labels).any()):
                raise UserError(
                    f"monitor.metric={name} ranks images with and without a label, and the validation images are all alike: add "
                    "others, or choose val/accuracy",
                    "monitor.one_class",
                )

    def training_loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        if self.options.teacher.sources:
            return self.taught_loss(batch)
        images, labels = batch
        wanted = self.target.wanted(labels, self.hparams["num_classes"], self.options.label_smoothing)
        if self.mixes:
            images, wanted = self.mixes[int(torch.randint(len(self.mixes), ()))](images, wanted)
        weights = None if self.weights is None else self.weights.to(wanted)
        scores, view_loss = self.scores_of_views(images)
        loss = LOSSES[self.loss_name](scores, wanted, weights) + view_loss
        if isinstance(self.model, Canonical) and isinstance(self.model.chooser, nn.Module):
            loss = loss + pose_loss(self.model, images, partial(each_loss, self.loss_name, wanted))
        return loss

    def scores_of_views(self, images: Tensor) -> tuple[Tensor, Tensor | float]:
        """Scores (B, K) of images, and what the losses of two views add."""
        if not self.options.compares_views:
            return self(images), 0.0
        maps = self.model.forward_features(images)
        scores, features = self.model.forward_head(maps), self.model.forward_head(maps, pre_logits=True)
        added = self.options.instance_loss * info_nce(features)
        # An encoder's scores are its features.
        unlike = 0.0 if self.options.makes_encoder else view_divergence(scores)
        return scores, self.options.consistency * unlike + added

    def taught_loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The mean loss against the teacher's answers; of images with a label, `label_share` of it is that of the label.

        batch: images (B, C, H, W), and (B, 1 + D): the label, -1 where there is none, and the teacher's answer behind it.
        """
        images, both = batch
        labels, answers, teacher = both[:, 0].long(), both[:, 1:], self.options.teacher
        scores, view_loss = self.scores_of_views(images)
        losses = self.teacher_losses(scores, answers)
        known = labels >= 0
        if teacher.label_share and bool(known.any()):
            wanted = self.target.wanted(labels[known], scores.shape[1], self.options.label_smoothing)
            own = each_loss(self.loss_name, wanted, scores[known])
            losses = losses.index_put((known,), torch.lerp(losses[known], own, teacher.label_share))
        return losses.mean() + view_loss

    def teacher_losses(self, scores: Tensor, answers: Tensor) -> Tensor:
        """The loss (B,) of each image against the teacher's answers."""
        if self.options.makes_encoder:
            return feature_loss(self.beside(scores), answers)
        return score_loss(scores, answers, self.options.teacher.temperature)

    def log_metrics(self, stage: str) -> None:
        measured: Any = self.metrics[stage]
        if any(metric.update_called for metric in measured.values()):  # images without labels update none
            super().log_metrics(stage)

    def evaluate_batch(self, batch: tuple[Tensor, Tensor], stage: str) -> None:
        images, labels = batch
        scores = self(images).float()
        if labels.ndim == 2 and isinstance(
            self.target, Classes
        ):  # with the teacher's answers, of images without labels
            loss = self.teacher_losses(scores, labels[:, 1:]).mean()
            self.log(f"{stage}/loss", loss, batch_size=len(labels), sync_dist=True)
            return
        self.update_metrics(stage, self.target.answers(scores), self.target.expected(labels))
        loss = LOSSES[self.target.losses[0]](scores, self.target.wanted(labels, scores.shape[1]), None)
        self.log(f"{stage}/loss", loss, batch_size=len(labels), sync_dist=True)
