"""Classification of images: a Lightning classifier around any timm model, `gcsa_*` or not, and what a run does with it."""

from typing import Any, cast

import pytorch_lightning as pl
import torch.nn.functional as F
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassCalibrationError

from gcsa._utils.validation import check_rate
from gcsa.models.create import create_model
from gcsa.training.adapt import attach
from gcsa.training.distributed import log_training_loss, shard
from gcsa.training.optimizer import make_optimizer, optimizer_and_schedule
from gcsa.training.schedule import make_schedule


def scores(num_classes: int, prefix: str) -> MetricCollection:
    """Accuracy, 15-bin calibration error and, for two classes, AUROC, from class probabilities (B, classes)."""
    metrics: dict[str, Any] = {
        "accuracy": MulticlassAccuracy(num_classes, average="micro"),
        "calibration_error": MulticlassCalibrationError(num_classes, n_bins=15),
    }
    if num_classes == 2:
        metrics["auroc"] = MulticlassAUROC(2)
    return MetricCollection(metrics, prefix=prefix)


class Classifier(pl.LightningModule):
    """Trains `model` on batches of images (B, C, H, W), float32, and labels (B,), int64.

    model: `name` and keyword arguments for `create_model`. optimizer: `opt`, `lr`, `weight_decay` and other
    arguments of timm's `create_optimizer_v2`. schedule: `name`, `warmup`, `final` of `make_schedule`. adapter: of
    `attach`; where there is a base, call `adapt` instead. Hyperparameters are plain dicts and scalars, so that
    checkpoints load with `weights_only=True`. Logs {val,test}/loss, accuracy, calibration_error and, for two classes,
    auroc. Raises ValueError for arguments that cannot work.
    """

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
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        check_rate("label_smoothing", label_smoothing)
        self.model = create_model(num_classes=num_classes, in_chans=in_chans, **model)
        if adapter is not None:
            self.model = attach(self.model, adapter)
        make_optimizer(self.model, optimizer)
        make_schedule(total=1, **schedule)
        self.metrics = nn.ModuleDict({stage: scores(num_classes, f"{stage}/") for stage in ("val", "test")})

    def forward(self, images: Tensor) -> Tensor:
        """Class scores (B, num_classes) of images (B, C, H, W)."""
        return self.model(images)

    def setup(self, stage: str) -> None:
        if self.hparams["compile"] and self.model._compiled_call_impl is None:
            self.model.compile()

    def configure_model(self) -> None:
        shard(self.model, self.device_mesh)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self(images), labels, label_smoothing=self.hparams["label_smoothing"])
        log_training_loss(self, loss, len(labels))
        return loss

    def evaluate_batch(self, batch: tuple[Tensor, Tensor], stage: str) -> None:
        images, labels = batch
        logits = self(images).float()
        metrics = cast(MetricCollection, self.metrics[stage])
        metrics.update(logits.softmax(-1), labels)
        self.log_dict(metrics, batch_size=len(labels))
        self.log(f"{stage}/loss", F.cross_entropy(logits, labels), batch_size=len(labels), sync_dist=True)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.evaluate_batch(batch, "val")

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.evaluate_batch(batch, "test")

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return optimizer_and_schedule(self)
