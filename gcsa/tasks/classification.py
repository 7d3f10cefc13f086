"""Classification of images: a Lightning classifier around any timm model, `gcsa_*` or not, and what a run does with it."""

from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassCalibrationError

from gcsa.checkpoints import save_classifier
from gcsa.data import create_datamodule
from gcsa.evaluation import count_flops, summarize
from gcsa.evaluation.run import evaluate
from gcsa.models.create import SEGMENTERS, create_model
from gcsa.training.adapt import attach
from gcsa.training.checks import is_number
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
        if not (is_number(label_smoothing) and 0 <= label_smoothing < 1):
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {label_smoothing}")
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


class Classification:
    """The task of data sets whose images have one label each; see `Task`."""

    module = Classifier
    monitored = ("val/accuracy", "val/loss", "val/auroc", "val/calibration_error")

    def build_data(self, cfg: dict[str, Any]) -> Any:
        """The data module of `cfg["data"]`, which has read nothing yet. Raises ValueError for options it refuses."""
        if "upsample" in cfg["model"]:
            raise ValueError(f"model={cfg['model']['name']} reads text lines: choose data=lines")
        if cfg["model"].get("name") in SEGMENTERS:
            raise ValueError(f"model={cfg['model']['name']} segments images: choose data=nuclei or data=mask_folder")
        try:
            data = create_datamodule(seed=cfg["seed"], **cfg["data"])
        except TypeError as error:
            raise ValueError(f"data={cfg['data']['name']} does not take these options: {error}") from error
        if data.num_classes < 2:
            raise ValueError(f"data={data.name} has one class, {data.class_names[0]}: there is nothing to tell apart")
        if cfg["monitor"]["metric"] == "val/auroc" and data.num_classes != 2:
            raise ValueError(f"monitor.metric=val/auroc needs two classes, but {data.name} has {data.num_classes}")
        return data

    def build_module(self, cfg: dict[str, Any], data: Any) -> Classifier:
        """The classifier of `cfg`, sized for `data`; `img_size: auto` becomes the data's.

        Raises ValueError for arguments the model refuses and for an image size that would break its equivariance.
        """
        model = dict(cfg["model"])
        if model.get("img_size") == "auto":
            model["img_size"] = data.image_size
        optimizer = dict(cfg["optimizer"])
        classifier = Classifier(
            model=model,
            schedule=optimizer.pop("schedule"),
            optimizer=optimizer,
            num_classes=data.num_classes,
            in_chans=data.in_chans,
            label_smoothing=cfg["label_smoothing"],
            compile=cfg["compile"],
        )
        check_input_size = getattr(classifier.model, "check_input_size", None)
        if callable(check_input_size):
            check_input_size(data.image_size, data.image_size)
        return classifier

    def export(self, classifier: Classifier, data: Any, folder: Path) -> str:
        """Writes the weights into `folder`; returns how timm names them."""
        side = data.image_size
        about = {"data": data.name, "group": getattr(classifier.model, "group_name", "c1")}
        preprocessing: dict[str, Any] = dict(
            input_size=(data.in_chans, side, side), mean=tuple(data.mean), std=tuple(data.std)
        )
        preprocessing["pad"] = getattr(data, "pad", None)  # of image_folder
        written = save_classifier(classifier.model, folder, about, label_names=data.class_names, **preprocessing)
        return f"local-dir:{written}"

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """Accuracy, calibration, turns, shifts and cost of a classifier, see `gcsa.evaluation.run.evaluate`."""
        if config["adapter"] is not None:
            raise ValueError("evaluate.py takes adapters of recognisers: name the merged weights of the run instead")
        return evaluate(config, output_dir)

    def count_flops(self, classifier: Classifier, data: Any) -> int:
        """FLOPs of one image."""
        return count_flops(classifier.model, torch.zeros(data.in_chans, data.image_size, data.image_size))

    def measure(
        self, classifier: Classifier, data: Any, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What the best model reaches beyond the `scores` of the test loop, and lines for the screen."""
        summary = summarize(classifier.model, data, output_dir)
        error = summary["invariance_error"]
        lines = {
            "test accuracy": f"{scores['test/accuracy']:.4f}",
            "invariance error": f"{error:.1e}",
            "figure": str(summary["figure"]),
        }
        return {"invariance_error": error}, lines
