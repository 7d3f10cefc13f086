"""Averaging, stopping on NaN, and checkpoints that a kill leaves whole."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from gcsa.tasks.classification import Classifier
from gcsa.training import EMA, run
from gcsa.training.checkpoint_io import AtomicCheckpointIO
from tests.runs import TINY, composed, train


class Recorder(pl.Callback):
    """The parameters before each validation and in it, and after each step."""

    def __init__(self) -> None:
        self.steps: list[torch.Tensor] = []
        self.validated: torch.Tensor

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.steps.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone())

    def on_validation_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.validated = torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def test_best_checkpoint_and_validation_hold_the_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, build = Recorder(), run.build_trainer

    def recorded(*args: Any) -> pl.Trainer:
        trainer = build(*args)
        trainer.callbacks.insert(0, recorder)
        return trainer

    monkeypatch.setattr(run, "build_trainer", recorded)
    train(composed(tmp_path, *TINY, "trainer.max_epochs=1", "callbacks.ema.decay=0.3"), tmp_path)

    average = recorder.steps[0].double()
    for update, weights in enumerate(recorder.steps[1:], 1):
        average = average.lerp(weights.double(), 1 - min(0.3, (1 + update) / (10 + update)))
    stored = torch.load(tmp_path / "checkpoints/best.ckpt", weights_only=True)
    names = [name for name in stored["state_dict"] if "running" not in name and "num_batches" not in name]
    best = torch.cat([stored["state_dict"][name].flatten() for name in names])
    torch.testing.assert_close(recorder.validated.double(), average, rtol=0, atol=1e-6)
    assert torch.equal(best, recorder.validated)
    assert not torch.equal(best, recorder.steps[-1])
    buffers = stored["state_dict"].keys() - set(names)
    assert len(buffers) > 0
    assert all(torch.equal(stored["state_dict"][n], stored["current_model_state"][n]) for n in buffers)


def test_ema_refuses_a_decay_of_one() -> None:
    with pytest.raises(ValueError, match="decay must be at least 0 and below 1, got 1"):
        EMA(1)


@pytest.mark.parametrize("device_like", [False, True])
def test_nan_loss_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device_like: bool) -> None:
    """Both as on a CPU, batch by batch, and as on a device, several batches late."""
    step = Classifier.training_step

    def poisoned(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = step(self, batch, batch_idx)
        return loss * float("nan") if batch_idx == 2 and self.current_epoch == 1 else loss

    monkeypatch.setattr(Classifier, "training_step", poisoned)
    if device_like:
        monkeypatch.setattr(run.StopOnNaN, "every_n_steps", 5, raising=False)
        monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    with pytest.raises(FloatingPointError, match=r"nan at batch 2 of epoch 1, where the learning rate is 0\.00\d+"):
        train(composed(tmp_path, *TINY), tmp_path)
    last = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)
    assert all(torch.isfinite(tensor).all() for tensor in last["current_model_state"].values())


def test_a_failed_write_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)
    with pytest.raises(AttributeError):
        AtomicCheckpointIO().save_checkpoint({"step": lambda: 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
