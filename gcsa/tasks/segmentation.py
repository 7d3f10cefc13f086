"""Segmentation: a Lightning module around a `Segmenter` of instances or of masks, and what a run does with it."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from gcsa.checkpoints import save_segmenter
from gcsa.dense.data.datamodule import MasksDataModule, Nuclei
from gcsa.dense.losses import checked_as, mask_loss, star_loss, targets_of
from gcsa.dense.measure import measure_turned, scores_of
from gcsa.dense.segmenter import Segmenter
from gcsa.dense.stars import check_installed
from gcsa.dense.thresholds import choose_thresholds
from gcsa.evaluation import count_flops
from gcsa.tasks.evaluate import evaluate_masks
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
        raise ValueError(f"data.crop={crop} must be a multiple of {multiple}{bound}: use {' or '.join(near)}")


class SegmentationTask:
    """The task of data sets whose images have label maps; see `Task`."""

    module = Segmentation
    monitored = ("val/ap50", "val/pq", "val/dice", "val/iou")

    def build_data(self, cfg: dict[str, Any]) -> MasksDataModule:
        """The data module of `cfg["data"]`, which has read nothing yet. Raises ValueError for options that it refuses."""
        options = dict(cfg["data"])
        kind = MODULES[options.pop("name")]
        try:
            return kind(seed=cfg["seed"], **options)
        except TypeError as error:
            raise ValueError(f"data={kind.name} does not take these options: {error}") from error

    def build_module(self, cfg: dict[str, Any], data: MasksDataModule) -> Segmentation:
        """The segmenter of `cfg`, which normalises as `data` does. Raises ValueError for arguments that it refuses."""
        if cfg.get("adapter") is not None:
            raise ValueError("a segmenter takes no adapter: leave out adapter=, and train it whole")
        if cfg["compile"]:
            raise ValueError("compile=true is for classifiers, and a segmenter is not compiled: leave compile=false")
        model = {key: value for key, value in cfg["model"].items() if value is not None and key != "img_size"}
        if model.get("task", "instances") == "instances":
            check_installed()
        elif cfg["monitor"]["metric"] in ("val/ap50", "val/pq"):
            raise ValueError(
                f"monitor.metric={cfg['monitor']['metric']} is of instances: take val/dice for model.task=masks"
            )
        low, high = data.percentiles
        optimizer = dict(cfg["optimizer"])
        schedule = optimizer.pop("schedule")
        model |= {"in_chans": data.in_chans, "low": low, "high": high}
        module = Segmentation(model=model, schedule=schedule, optimizer=optimizer)
        check_crop(data.crop, module.model.multiple, module.model.least)
        data.targets = targets_of(module.model)
        data.check_labels = checked_as(module.model)
        return module

    def export(self, module: Segmentation, data: MasksDataModule, folder: Path) -> str:
        """Chooses the thresholds on the validation images, and writes the weights into `folder`, for segment.py; returns it."""
        if module.model.task == "instances":
            data.trainer = None  # all images: in a fit of several processes each had its share
            data.setup("validate")  # which a process that only started those has not read
            choose_thresholds(
                module.model.eval(), ((image[0], labels[0].numpy()) for image, labels in data.val_dataloader())
            )
        return str(save_segmenter(module.model, folder, {"data": data.name}))

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """How right the label maps of a segmenter are, see `evaluate_masks`."""
        return evaluate_masks(config, self.build_data(config))

    def count_flops(self, module: Segmentation, data: MasksDataModule) -> int:
        """FLOPs of an image of `COUNTED_SIDE` pixels a side."""
        return count_flops(module.model, torch.zeros(data.in_chans, COUNTED_SIDE, COUNTED_SIDE))

    def measure(
        self, module: Segmentation, data: MasksDataModule, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What the turned and mirrored test images give, and lines for the screen."""
        examples = ((image[0], labels[0].numpy()) for image, labels in data.test_dataloader())
        turned = measure_turned(module.model.eval(), examples)
        shown = {"test dice": f"{scores['test/dice']:.4f}"}
        change = f"{turned['pixels']} pixels"
        if "test/ap50" in scores:
            shown["test AP at IoU 0.5"] = f"{scores['test/ap50']:.4f}"
            change += f" and {turned['objects']} objects"
        shown["turned and mirrored"] = f"{change} change"
        settings = {key: module.model.options[key] for key in ("threshold", "overlap")}
        return {"turned": turned, **settings}, shown
