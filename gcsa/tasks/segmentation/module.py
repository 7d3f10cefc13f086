"""Segmentation: a Lightning module around a `Segmenter` of instances or of masks, and what a run does with it."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.tasks.segmentation.data.datamodule import MasksDataModule, Nuclei
from gcsa.tasks.segmentation.losses import mask_loss, star_loss
from gcsa.tasks.segmentation.metrics import scores_of
from gcsa.tasks.segmentation.segmenter import Segmenter
from gcsa.training.distributed import log_training_loss, shard
from gcsa.training.optimizer import make_optimizer, optimizer_and_schedule
from gcsa.training.schedule import make_schedule

MODULES = {module.name: module for module in (Nuclei, MasksDataModule)}
COUNTED_SIDE = 256
"""Pixels a side of the image whose FLOPs are counted."""


class Segmentation(pl.LightningModule):
    """Trains a `Segmenter` on crops (B, C, h, w) with targets (B, T, h, w); measures it on whole images.

    model: keyword arguments of `Segmenter`; optimizer, schedule, adapter: as of `Classifier`. Logs {val,test}/ with the names of
    `OverlapScores` and, for instances, of `InstanceScores`. Raises ValueError for arguments that cannot work.
    """

    def __init__(
        self,
        model: dict[str, Any],
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        adapter: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = Segmenter(**model)
        make_optimizer(self.model, optimizer)
        make_schedule(total=1, **schedule)
        self.loss = star_loss if self.model.task == "instances" else mask_loss
        self.metrics = nn.ModuleDict({stage: nn.ModuleList(scores_of(self.model)) for stage in ("val", "test")})

    def configure_model(self) -> None:
        shard(self.model, self.device_mesh)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return optimizer_and_schedule(self)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (B, C, H, W) to outputs (B, outputs, H, W)."""
        return self.model(images)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, targets = batch
        loss = self.loss(self(images), targets)
        log_training_loss(self, loss, len(images))
        return loss

    def evaluate_batch(self, batch: tuple[Tensor, Tensor], stage: str) -> None:
        (image,), (labels,) = batch
        found, drawn = self.model.labels(self.model.maps(image).float()), labels.cpu().numpy()
        metrics: Any = self.metrics[stage]
        for metric in metrics:
            metric.update(found, drawn)

    def log_scores(self, stage: str) -> None:
        metrics: Any = self.metrics[stage]
        for metric in metrics:
            scores = {f"{stage}/{name}": value.float() for name, value in metric.compute().items()}
            self.log_dict(scores, sync_dist=True)
            metric.reset()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.evaluate_batch(batch, "val")

    def on_validation_epoch_end(self) -> None:
        self.log_scores("val")

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.evaluate_batch(batch, "test")

    def on_test_epoch_end(self) -> None:
        self.log_scores("test")


def check_crop(crop: int, multiple: int, least: int) -> None:
    """Raises ValueError, naming the nearest sides that work, for crops that a network does not take."""
    if crop % multiple or crop < least:
        below = crop // multiple * multiple
        near = [str(side) for side in (below, below + multiple) if side >= least] or [str(least)]
        bound = f", {least} or more" if crop < least else ""
        raise UserError(f"data.crop={crop} must be a multiple of {multiple}{bound}: use {' or '.join(near)}")
