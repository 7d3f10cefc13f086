"""Classification of images: the Lightning module around any timm model, `gcsa_*` or not."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC

from gcsa._utils.validation import check_rate
from gcsa.evaluation.metrics import BINS, bin_sums, calibration_error
from gcsa.models.create import create_model
from gcsa.training.module import TaskModule


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


def build_metrics(num_classes: int) -> dict[str, Metric]:
    """Accuracy, 15-bin calibration error and, for two classes, AUROC, from class probabilities (B, classes)."""
    metrics: dict[str, Metric] = {
        "accuracy": MulticlassAccuracy(num_classes, average="micro"),
        "calibration_error": CalibrationError(),
    }
    return metrics | ({"auroc": MulticlassAUROC(2)} if num_classes == 2 else {})


class Classifier(TaskModule):
    """Trains `model` on batches of images (B, C, H, W), float32, and labels (B,), int64.

    Logs {val,test}/loss, accuracy, calibration_error and, for two classes, auroc.

    Args:
        model: `name` and keyword arguments for `create_model`.
        optimizer, schedule, adapter: of `TaskModule`.
        preprocessing: that of the data module; a checkpoint takes it along for `gcsa.load`.

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
        label_smoothing: float = 0.0,
        compile: bool = False,
        adapter: dict[str, Any] | None = None,
        preprocessing: dict[str, Any] | None = None,
    ) -> None:
        check_rate("label_smoothing", label_smoothing)
        network = create_model(num_classes=num_classes, in_chans=in_chans, **model)
        super().__init__(network, partial(build_metrics, num_classes), optimizer, schedule, adapter)

    def setup(self, stage: str) -> None:
        if self.hparams["compile"] and self.model._compiled_call_impl is None:
            self.model.compile()

    def training_loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels, label_smoothing=self.hparams["label_smoothing"])

    def evaluate_batch(self, batch: tuple[Tensor, Tensor], stage: str) -> None:
        images, labels = batch
        logits = self(images).float()
        self.update_metrics(stage, logits.softmax(-1), labels)
        self.log(f"{stage}/loss", F.cross_entropy(logits, labels), batch_size=len(labels), sync_dist=True)
