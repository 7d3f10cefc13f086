"""`TaskModule`: the Lightning hooks that every task shares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytorch_lightning as pl
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from gcsa.training.adapt import attach
from gcsa.training.distributed import shard
from gcsa.training.optimizer import make_optimizer, optimizer_and_schedule
from gcsa.training.schedule import make_schedule


class TaskModule(pl.LightningModule):
    """Trains `model` on batches whose first entry holds the images (B, ...), and measures it.

    A task's module passes its network and its metrics to `__init__`, and has `training_loss` and `evaluate_batch`. The
    arguments of its own `__init__` become the hyperparameters, with the name of the task as `task`: plain dicts and scalars,
    so that checkpoints load with `weights_only=True`. Logs train/loss, and {val,test}/ with the names that the metrics compute.

    Args:
        network: what is trained; `self.model`.
        metrics: makes the metrics of one stage, which compute a scalar, or scalars by name.
        optimizer: `opt`, `lr`, `weight_decay` and other arguments of timm's `create_optimizer_v2`.
        schedule: `name`, `warmup` and `final` of `make_schedule`.
        adapter: of `attach`, for a checkpoint of an adapted model; where there is a base, call `adapt` instead.

    Attributes:
        beside: a module that is trained beside the network and not kept in weights; None: there is none.

    Raises:
        UserError: arguments that cannot work.
    """

    task: ClassVar[str]

    def __init__(
        self,
        network: nn.Module,
        metrics: Callable[[], Mapping[str, Metric]],
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        adapter: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.beside: Any = None
        self.save_hyperparameters(ignore=("network", "metrics"))
        self.hparams["task"] = self.task
        self.model: Any = network if adapter is None else attach(network, adapter)
        make_optimizer(self.model, optimizer)
        make_schedule(total=1, **schedule)
        self.metrics = nn.ModuleDict(
            {stage: MetricCollection(dict(metrics()), compute_groups=False) for stage in ("val", "test")}
        )

    @property
    def lr(self) -> float:
        """The peak learning rate, where Lightning's `Tuner.lr_find` reads and sets it."""
        return float(self.hparams["optimizer"]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        self.hparams["optimizer"]["lr"] = value

    @abstractmethod
    def training_loss(self, batch: Any) -> Tensor:
        """The mean loss of a batch, of shape ()."""

    @abstractmethod
    def evaluate_batch(self, batch: Any, stage: str) -> None:
        """Updates `self.metrics[stage]`; stage is val or test."""

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)

    def configure_model(self) -> None:
        shard(self.model, self.device_mesh)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return optimizer_and_schedule(self)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss, size = self.training_loss(batch), len(batch[0])
        # Lightning would make the processes, and the devices, wait for each other to average the loss of every step.
        self.log("train/loss_step", loss, batch_size=size)
        self.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=size, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluate_batch(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluate_batch(batch, "test")

    def on_validation_epoch_end(self) -> None:
        self.log_metrics("val")

    def on_test_epoch_end(self) -> None:
        self.log_metrics("test")

    def update_metrics(self, stage: str, predicted: Any, expected: Any) -> None:
        """Gives the metrics of a stage what was predicted and what is right."""
        metrics: Any = self.metrics[stage]
        metrics.update(predicted, expected)

    def log_metrics(self, stage: str) -> None:
        """Logs what the metrics of a stage computed over its epoch, and resets them."""
        metrics: Any = self.metrics[stage]
        self.log_dict({f"{stage}/{name}": value.float() for name, value in metrics.compute().items()}, sync_dist=True)
        metrics.reset()
