"""Recognition of text lines: a Lightning module around a recogniser trained by CTC, and what a run does with it."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics.text import CharErrorRate, WordErrorRate

from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.decoding import ctc_loss
from gcsa.training.adapt import attach
from gcsa.training.distributed import log_training_loss, shard
from gcsa.training.optimizer import make_optimizer, optimizer_and_schedule
from gcsa.training.schedule import make_schedule

COUNTED_WIDTH = 480
"""Pixels of the line whose FLOPs are counted: about the median of a printed line 40 pixels high."""

Batch = tuple[Tensor, Tensor, Tensor, list[str]]


class Recognizer(pl.LightningModule):
    """Trains a `CTCRecognizer` on batches of `LinesDataModule`: images (B, 1, height, W), the lines' classes one after
    the other, their lengths (B,), and the texts.

    model: keyword arguments of `CTCRecognizer`; characters: its charset; optimizer, schedule, adapter: as of
    `Classifier`. Logs {val,test}/loss, cer and wer (fractions, of greedy decoding). Raises ValueError for arguments that cannot work.
    """

    def __init__(
        self,
        model: dict[str, Any],
        characters: str,
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        adapter: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model: Any = CTCRecognizer(characters, **model)
        if adapter is not None:
            self.model = attach(self.model, adapter)
        make_optimizer(self.model, optimizer)
        make_schedule(total=1, **schedule)
        stages = ("val", "test")
        self.metrics = nn.ModuleDict(
            {f"{s}/{name}": kind() for s in stages for name, kind in (("cer", CharErrorRate), ("wer", WordErrorRate))}
        )

    def configure_model(self) -> None:
        shard(self.model, self.device_mesh)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return optimizer_and_schedule(self)

    def forward(self, images: Tensor) -> Tensor:
        """Lines (B, 1, height, W) to log-probabilities (B, T, classes)."""
        return self.model(images)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, targets, lengths, _ = batch
        loss = ctc_loss(self(images), targets, lengths)
        log_training_loss(self, loss, len(lengths))
        return loss

    def evaluate_batch(self, batch: Batch, stage: str) -> None:
        images, targets, lengths, texts = batch
        log_probs = self(images)
        read = [self.model.reading(line).text for line in log_probs.float().cpu()]
        for name in ("cer", "wer"):
            metric: Any = self.metrics[f"{stage}/{name}"]
            metric.update(read, texts)
            self.log(f"{stage}/{name}", metric, batch_size=len(texts))
        self.log(f"{stage}/loss", ctc_loss(log_probs, targets, lengths), batch_size=len(texts), sync_dist=True)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.evaluate_batch(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.evaluate_batch(batch, "test")
