"""Callbacks that make a run safe to average, to resume and to stop."""

import random
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ProgressBar, RichProgressBar, Timer, WeightAveraging
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_rate, listed, shown
from gcsa.symmetry import Symmetrized


def running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """The means and variances that batch norm keeps for evaluation, by their names."""
    names = ("running_mean", "running_var")
    return {name: buffer for name, buffer in model.named_buffers() if name.rpartition(".")[2] in names}


class EMA(WeightAveraging):
    """Exponential moving average of the parameters and of the statistics of batch norm, which belong to the weights that
    they were taken with (as timm's ModelEmaV3). Validation and checkpoints use the average.

    Other buffers are copied: an average of two draws of random features is no draw. The decay rises as
    (1 + n) / (10 + n) with the number n of updates until it reaches `decay`, so that short runs are not held back by
    their first steps. Raises ValueError for a decay outside [0, 1).
    """

    def __init__(self, decay: float = 0.999) -> None:
        check_rate("callbacks.ema.decay", decay)
        self.decay = decay
        super().__init__(use_buffers=False, multi_avg_fn=self._average)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if self._average_model is not None:
            # torch reads this counter on the host at every update: on a GPU that would wait for the device each time.
            self._average_model.n_averaged = self._average_model.n_averaged.cpu()
            # Lightning copies the model before it takes on the precision of `trainer.precision`. Float32 is right for
            # half precision, in which small steps of the average would be lost, but not for float64.
            if trainer.precision == "64-true":
                self._average_model.double()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert self._average_model is not None
        statistics = list(running_statistics(self._average_model).values())
        updates = self._latest_update_step
        averages = [statistic.clone() for statistic in statistics]
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)  # copies all buffers
        if averages and self._latest_update_step > updates and self._average_model.n_averaged > 1:
            torch._foreach_lerp_(averages, statistics, self._share(updates))
            torch._foreach_copy_(statistics, averages)

    def _average(self, averages: list[Tensor], parameters: list[Tensor], _: Tensor) -> None:
        latest = [parameter.to(average.dtype) for parameter, average in zip(parameters, averages, strict=True)]
        torch._foreach_lerp_(averages, latest, self._share(self._latest_update_step))

    def _share(self, updates: int) -> float:
        """Of the latest values in the average, after `updates`."""
        return 1 - min(self.decay, (1 + updates) / (10 + updates))


class Freeze(pl.Callback):
    """Keeps modules of `model`, or of the network that it makes exact, as they are: their parameters are not trained, and they
    stay in eval mode, so that running statistics do not move. Raises UserError for a name that there is not."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        if not isinstance(names, list | tuple):
            raise UserError(f"freeze={shown(names)} must be a list such as [stem]", "freeze", names=names)
        inner = model.network if isinstance(model, Symmetrized) else model  # whose names the user knows
        modules = dict(inner.named_modules()) | dict(model.named_modules())
        if unknown := [name for name in names if not name or name not in modules]:
            choices = ", ".join(name for name, _ in inner.named_children())
            raise UserError(
                f"freeze: the network has no module {shown(unknown[0])}: choose from {choices}", "freeze.module"
            )
        self.modules = [modules[name] for name in names]
        for module in self.modules:
            module.requires_grad_(False)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise UserError(f"freeze={listed(names)} leaves nothing to train", "freeze.everything")

    def on_train_batch_start(self, *args: Any) -> None:
        for module in self.modules:
            module.eval()


class StepSeed(pl.Callback):
    """Seeds torch, numpy and random before every batch from (seed, rank, step).

    Dropout and the like are then a function of the step alone, so that a run resumed at any step repeats exactly what
    the uninterrupted one would have drawn, whatever else (validation, loaders, figures) used the generators.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        batch = trainer.fit_loop.total_batch_idx
        words = np.random.SeedSequence((self.seed, trainer.global_rank, batch)).generate_state(2)
        torch.manual_seed(int(words[0]) << 32 | int(words[1]))
        np.random.seed(words[0])  # noqa: NPY002  (the generator that others use without asking)
        random.seed(int(words[1]))


class NotFiniteError(UserError, FloatingPointError):
    """A loss or a weight is NaN or infinite."""


class StopOnNaN(pl.Callback):
    """Ends the run with NotFiniteError when a training loss is not finite, naming batch, epoch and learning rate, or
    when weights are not that a checkpoint would hold: the one before it is kept.

    On a CPU every batch is checked at once; on a device every `every_n_steps` batches, at each epoch's end and before
    each checkpoint, because looking at a loss waits for the device.
    """

    def __init__(self, every_n_steps: int = 50) -> None:
        self.every_n_steps = every_n_steps
        self._losses: list[Tensor] = []
        self._steps: list[tuple[int, int, float]] = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._steps.append((batch_idx, trainer.current_epoch, trainer.optimizers[0].param_groups[0]["lr"]))

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"])
        if outputs["loss"].is_cpu or len(self._losses) >= self.every_n_steps:
            self._check()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check()

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Any) -> None:
        self._check()
        for key in ("current_model_state", "state_dict"):
            check_finite(checkpoint.get(key, {}), trainer.global_step)

    def _check(self) -> None:
        losses, steps = self._losses, self._steps
        self._losses, self._steps = [], []
        if not losses:
            return
        values = torch.stack(losses).tolist()
        for value, (batch_idx, epoch, lr) in zip(values, steps, strict=True):
            if not np.isfinite(value):
                raise NotFiniteError(
                    f"the training loss is {value} at batch {batch_idx} of epoch {epoch}, where the learning rate is "
                    f"{lr:.3g}: lower optimizer.lr, clip gradients (trainer.gradient_clip_val) or look at that batch"
                )


def check_finite(state: Mapping[str, Tensor], step: int) -> None:
    """Raises NotFiniteError, naming the first, where a tensor of `state` holds NaN or infinity."""
    numbers = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    finite = [tensor.isfinite().all() for tensor in numbers.values()]
    if finite and not torch.stack(finite).all():  # one wait for the device
        name = next(name for name, good in zip(numbers, finite, strict=True) if not good)
        raise NotFiniteError(
            f"the weights hold NaN or infinity after step {step}, first in {name}, so they are not saved: the earlier "
            "checkpoints are kept; lower optimizer.lr or clip gradients (trainer.gradient_clip_val)"
        )


class ValidateLastEpoch(pl.Callback):
    """The last epoch is validated whatever `check_val_every_n_epoch` is, and where `max_steps` ends it early, for the weights
    that the whole schedule led to are candidates too."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Of a run that is resumed within its last epoch nothing else tells.
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch + 1 == trainer.max_epochs:
            trainer.check_val_every_n_epoch = 1

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        if 0 <= trainer.max_steps <= trainer.global_step:
            trainer.should_stop = True  # within an epoch, Lightning validates before this stop alone
            trainer.check_val_every_n_epoch = 1


class TimeLimit(Timer):
    """Ends the fit with a validation after `duration` ("DD:HH:MM:SS"), that before a resume counted.

    `share` is how much of it was over after the latest batch, the same number in all processes, which the learning rate
    follows: replicas with rates of their own would drift apart.
    """

    def __init__(self, duration: str) -> None:
        super().__init__(duration, verbose=False)
        self._seconds = self.time_elapsed() + (self.time_remaining() or 0)
        self.share = 0.0

    @property
    def state_key(self) -> str:
        """A plain timer's, so that a run can be given a limit, or another, as it is resumed."""
        return Timer.__qualname__

    def on_fit_start(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        self._look(trainer)
        if self.share == 1:
            rank_zero_only(print)("trainer.max_time is used up, so nothing more is trained: give more to go on")

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        self._look(trainer)

    def _look(self, trainer: pl.Trainer) -> None:
        self.share = trainer.strategy.broadcast(min(1.0, self.time_elapsed() / self._seconds))
        if self.share == 1:
            trainer.should_stop = True
            trainer.check_val_every_n_epoch = 1  # as `ValidateLastEpoch`


def trained_seconds(trainer: pl.Trainer) -> float:
    """How long the run has trained, that before a resume included, by its timer."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return sum(callback.time_elapsed() for callback in callbacks if isinstance(callback, Timer))


def time_limit(trainer: pl.Trainer) -> TimeLimit | None:
    """The one of `trainer`, if it has one."""
    return next((callback for callback in trainer.callbacks if isinstance(callback, TimeLimit)), None)  # type: ignore[attr-defined]


class EpochLines(ProgressBar):
    """Prints one line an epoch, for logs and pipes where a moving bar would be noise, and within epochs of more than `every`
    seconds how far the run is and when it will end."""

    def __init__(self, every: float = 30.0) -> None:
        super().__init__()
        self.every = every
        self._since = self._printed = time.monotonic()
        self._start: tuple[float, int] | None = None  # when the first batch of this process ended, and its number
        self._enabled = True
        self._validated = False  # since the last line: Lightning keeps the figures of earlier validations

    def disable(self) -> None:
        """Lightning asks for this in all processes but the first."""
        self._enabled = False

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now, done = time.monotonic(), trainer.fit_loop.total_batch_idx + 1
        if self._start is None:
            self._start = now, done
        elif self._enabled and now - self._printed >= self.every:
            self._printed = now
            left = self._left(trainer, (now - self._start[0]) / (done - self._start[1]), done)
            print(f"{self._epoch(trainer)}  batch {batch_idx + 1}/{trainer.num_training_batches}  {left}", flush=True)

    def _epoch(self, trainer: pl.Trainer) -> str:
        """The epoch, of those that the run has: `max_steps` may end it before `max_epochs`."""
        epochs, steps = (
            trainer.max_epochs or 0,
            -(-int(trainer.num_training_batches) // trainer.accumulate_grad_batches),
        )
        if trainer.max_steps > 0:
            epochs = min(epochs, max(trainer.current_epoch + 1, -(-trainer.max_steps // steps)))
        return f"epoch {trainer.current_epoch + 1}/{epochs}"

    def _left(self, trainer: pl.Trainer, seconds_a_batch: float, done: int) -> str:
        batches = max(0, (trainer.max_epochs or 0) * int(trainer.num_training_batches) - done)
        if trainer.max_steps > 0:
            batches = min(batches, (trainer.max_steps - trainer.global_step) * trainer.accumulate_grad_batches)
        seconds, limit = batches * seconds_a_batch, time_limit(trainer)
        if limit is not None:
            seconds = min(seconds, max(0.0, limit.time_remaining() or 0.0))
        return f"about {timedelta(seconds=round(seconds))} left"

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._enabled:
            metrics, validated, self._validated = trainer.callback_metrics, self._validated, False
            shown = (n for n in sorted(metrics) if n == "train/loss" or (validated and n.startswith("val/")))
            values = "  ".join(f"{name} {float(metrics[name]):.4f}" for name in shown)
            since, self._since = self._since, time.monotonic()
            self._printed = self._since
            seconds = self._since - since
            print(f"{self._epoch(trainer)}  {seconds:.1f} s  {values}", flush=True)


def progress_bar(refresh_rate: int = 10) -> ProgressBar:
    """A rich bar redrawn every `refresh_rate` batches on a terminal, `EpochLines` elsewhere."""
    return RichProgressBar(refresh_rate=refresh_rate) if sys.stdout.isatty() else EpochLines()
