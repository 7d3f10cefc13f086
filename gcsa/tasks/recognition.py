"""Recognition of text lines: a Lightning module around a recogniser trained by CTC, and what a run does with it."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics.text import CharErrorRate, WordErrorRate

from gcsa.checkpoints import read, save_recognizer
from gcsa.evaluation import count_flops
from gcsa.ocr.data.datamodule import LinesDataModule
from gcsa.ocr.measure import measure as measure_reading
from gcsa.ocr.recognizers.ctc import CTCRecognizer
from gcsa.ocr.recognizers.decoding import ctc_loss
from gcsa.tasks.evaluate import evaluate_lines
from gcsa.training.adapt import attach, check_adapter
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


class Recognition:
    """The task of data sets whose images are lines of text; see `Task`."""

    module = Recognizer
    monitored = ("val/cer", "val/wer", "val/loss")

    def build_data(self, cfg: dict[str, Any]) -> LinesDataModule:
        """The data module of `cfg["data"]`, with the charset of the adapter's base to continue where there is one.

        Raises ValueError for options that it refuses, and whatever `gcsa.checkpoints.read` does.
        """
        options = {key: value for key, value in cfg["data"].items() if key != "name"}
        if cfg.get("adapter") is not None and options["charset"] is None:
            check_adapter(cfg["adapter"])
            options["charset"] = read(cfg["adapter"]["base"]).characters
        try:
            return LinesDataModule(seed=cfg["seed"], **options)
        except TypeError as error:
            raise ValueError(f"data=lines does not take these options: {error}") from error

    def build_module(self, cfg: dict[str, Any], data: LinesDataModule) -> Recognizer:
        """The recogniser of `cfg` for the charset of `data`. Raises ValueError for arguments that it refuses."""
        if cfg["compile"]:
            raise ValueError("compile=true is for classifiers, and a recogniser is not compiled: leave compile=false")
        model = {key: value for key, value in cfg["model"].items() if value is not None and key != "img_size"}
        optimizer = dict(cfg["optimizer"])
        module = Recognizer(
            model={"encoder": model.pop("name"), "height": data.height, **model},
            characters=data.charset.characters,
            schedule=optimizer.pop("schedule"),
            optimizer=optimizer,
        )
        if data.step % module.model.stride != 0:
            raise ValueError(f"data.step={data.step} must be a multiple of {module.model.stride}, the encoder's stride")
        data.pixels_per_step = module.model.stride / module.model.steps
        return module

    def export(self, recognizer: Recognizer, data: LinesDataModule, folder: Path) -> str:
        """Writes the weights into `folder`, for transcribe.py; returns it."""
        return str(save_recognizer(recognizer.model, folder, {"data": data.script or data.name}))

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """How a recogniser reads lines, see `evaluate_lines`."""
        return evaluate_lines(config, self.build_data({**config, "adapter": None}))

    def count_flops(self, recognizer: Recognizer, data: LinesDataModule) -> int:
        """FLOPs of a line of `COUNTED_WIDTH` pixels."""
        return count_flops(recognizer.model, torch.zeros(1, data.height, COUNTED_WIDTH))

    def measure(
        self, recognizer: Recognizer, data: LinesDataModule, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """How the test lines are read, upright and turned, and lines for the screen."""
        rates = {
            f"test/{name}": value for name, value in measure_reading(recognizer.model, data.test_dataloader()).items()
        }
        lines = {"test CER": f"{rates['test/cer']:.4f}", "test WER": f"{rates['test/wer']:.4f}"}
        if "test/same_when_turned" in rates:
            lines["read the same at any quarter turn"] = f"{rates['test/same_when_turned']:.4f} of the lines"
        return rates, lines
