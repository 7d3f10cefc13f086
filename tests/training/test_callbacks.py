"""Averaging, stopping on NaN, and checkpoints that a kill leaves whole."""

import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import timm
import torch
from pytorch_lightning.callbacks import timer
from timm.models import load_checkpoint

from gcsa.models.registry import checkpoint_filter_fn
from gcsa.tasks.classification.module import Classifier
from gcsa.training import callbacks, run
from gcsa.training.callbacks import EMA
from tests.errors import raises
from tests.runs import TINY, composed, killed_at, train, watched_by

State = dict[str, torch.Tensor]


class Recorder(pl.Callback):
    """Parameters and buffers after each step, and in validation."""

    def __init__(self) -> None:
        self.steps: list[State] = []
        self.validated: State

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.steps.append({name: tensor.clone() for name, tensor in module.state_dict().items()})

    def on_validation_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.validated = {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    with watched_by(recorder):
        yield recorder


def averages(steps: list[State], decay: float) -> dict[str, torch.Tensor]:
    """The mean that the class EMA describes, in float64."""
    mean = {name: tensor.double() for name, tensor in steps[0].items()}
    for update, state in enumerate(steps[1:], 1):
        share = 1 - min(decay, (1 + update) / (10 + update))
        mean = {name: before.lerp(state[name].double(), share) for name, before in mean.items()}
    return mean


def test_best_checkpoint_and_validation_hold_the_average(tmp_path: Path, recorder: Recorder) -> None:
    """Of weights and of batch norm's statistics, which Lightning would leave those of the last weights."""
    train(composed(tmp_path, *TINY, "trainer.max_epochs=1", "callbacks.ema.decay=0.3"), tmp_path)
    stored = torch.load(tmp_path / "checkpoints/best.ckpt", weights_only=True)
    statistics = {name for name in recorder.steps[0] if "running" in name}
    counted = {name for name in recorder.steps[0] if "num_batches" in name}
    assert len(statistics) > 0
    assert len(counted) > 0
    for name, mean in averages(recorder.steps, 0.3).items():
        expected = recorder.steps[-1][name].double() if name in counted else mean
        torch.testing.assert_close(stored["state_dict"][name].double(), expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(stored["state_dict"][name], recorder.validated[name])
        assert torch.equal(stored["current_model_state"][name], recorder.steps[-1][name])
    differ = {
        name for name, tensor in stored["state_dict"].items() if not torch.equal(tensor, recorder.steps[-1][name])
    }
    assert statistics <= differ
    assert not counted & differ


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        (("model=gcsa_tiny", "model.depth=1", "model.fields=4"), {}),
        (TINY[:2], dict(filter_fn=checkpoint_filter_fn)),  # a network that is not of gcsa
    ],
)
def test_timm_loads_the_average(
    tmp_path: Path, recorder: Recorder, model: tuple[str, ...], arguments: dict[str, Any]
) -> None:
    train(composed(tmp_path, *model, *TINY[3:], "trainer.max_epochs=1", "callbacks.ema.decay=0.3"), tmp_path)
    hyper = torch.load(tmp_path / "checkpoints/best.ckpt", weights_only=True)["hyper_parameters"]
    options = dict(hyper["model"], num_classes=hyper["num_classes"], in_chans=hyper["in_chans"])
    network = timm.create_model(options.pop("name"), **options)
    load_checkpoint(network, str(tmp_path / "checkpoints/best.ckpt"), **arguments)
    found = network.state_dict()
    assert {f"model.{name}" for name in found} == recorder.validated.keys()
    assert all(torch.equal(tensor, recorder.validated[f"model.{name}"]) for name, tensor in found.items())
    assert not all(torch.equal(tensor, recorder.steps[-1][f"model.{name}"]) for name, tensor in found.items())


def test_random_features_are_not_averaged(tmp_path: Path, recorder: Recorder) -> None:
    """Each draw is orthogonal, which no mean of two is; the Performer redraws after three steps here."""
    model = ("model=performer_tiny", "model.redraw_interval=3", "model.depth=1", "callbacks.ema.decay=0.9")
    train(composed(tmp_path, *TINY[3:], *model, "trainer.max_epochs=1", "data.limit_train=128"), tmp_path)
    stored = torch.load(tmp_path / "checkpoints/best.ckpt", weights_only=True)["state_dict"]
    (name,) = (name for name in stored if name.endswith("projection"))
    assert not torch.equal(recorder.steps[0][name], recorder.steps[-1][name])
    assert torch.equal(stored[name], recorder.steps[-1][name])


def test_ema_refuses_a_decay_of_one() -> None:
    with raises("callbacks.ema.decay", value=1):
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


def validated(folder: Path) -> list[int]:
    """The epochs with a validation, of all starts of a run."""
    paths = sorted(folder.glob("csv/version_*/metrics.csv"))
    rows = [row for path in paths for row in csv.DictReader(path.read_text().splitlines())]
    return [int(row["epoch"]) for row in rows if row.get("val/loss")]


def test_the_last_epoch_is_validated(tmp_path: Path) -> None:
    own = ("trainer.check_val_every_n_epoch=2", "data.limit_train=32", "logger=csv")
    train(composed(tmp_path, *TINY, *own), tmp_path)
    assert validated(tmp_path) == [1, 2]


@pytest.mark.parametrize(("steps", "interval", "epochs"), [(3, 2, [0]), (4, 2, [0]), (7, 1, [0, 1])])
def test_an_epoch_that_max_steps_ends_is_validated(
    tmp_path: Path, steps: int, interval: int, epochs: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """With 4 batches an epoch; its line on the screen shows its own figures."""
    own = (f"trainer.max_steps={steps}", f"trainer.check_val_every_n_epoch={interval}")
    train(composed(tmp_path, *TINY, *own, "data.limit_train=128", "logger=csv"), tmp_path)
    assert validated(tmp_path) == epochs
    rows = csv.DictReader((tmp_path / "csv/version_0/metrics.csv").read_text().splitlines())
    losses = [float(row["val/loss"]) for row in rows if row["val/loss"]]
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert [float(line.split()[-1]) for line in shown] == pytest.approx(losses, abs=1e-4)
    assert torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["global_step"] == steps


def test_the_last_epoch_is_validated_of_a_run_resumed_within_it(tmp_path: Path) -> None:
    """Killed at its third batch of four, where no hook tells that the epoch starts."""
    own = ("trainer.check_val_every_n_epoch=2", "checkpoint_every_n_steps=3", "logger=csv")
    with killed_at(10):
        train(composed(tmp_path, *TINY, *own), tmp_path)
    assert validated(tmp_path) == [1]
    train(composed(tmp_path, *TINY, *own, "ckpt_path=last"), tmp_path)
    assert validated(tmp_path) == [1, 2]


def test_the_schedule_ends_with_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run far from its last epoch: its rate is the last one, its last weights are validated, and it can go on.

    The clock moves by 80 ms whenever it is looked at."""
    clock = itertools.count()
    monkeypatch.setattr(timer, "time", SimpleNamespace(monotonic=lambda: next(clock) / 12.5))
    own = [*TINY, "trainer.max_epochs=100000", "trainer.check_val_every_n_epoch=100000", "data.limit_train=32"]
    train(composed(tmp_path, *own, "trainer.max_time=00:00:00:02"), tmp_path)
    ended = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)
    (rate,) = {group["lr"] / group["initial_lr"] for group in ended["optimizer_states"][0]["param_groups"]}
    assert ended["hyper_parameters"]["schedule"]["final"] <= rate < 0.05
    assert (tmp_path / "results.json").is_file(), "a best epoch"
    capsys.readouterr()
    train(composed(tmp_path, *own, "trainer.max_time=00:00:00:02", "ckpt_path=last"), tmp_path)
    assert "trainer.max_time is used up, so nothing more is trained" in capsys.readouterr().out
    train(composed(tmp_path, *own, "trainer.max_time=00:00:00:04", "ckpt_path=last"), tmp_path)
    assert torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["global_step"] > ended["global_step"]


def test_a_resumed_run_counts_the_time_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = tmp_path / "checkpoints/last.ckpt"
    own = [*TINY, "data.limit_train=32"]
    train(composed(tmp_path, *own, "trainer.max_epochs=1"), tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["fit_seconds"] < 1000
    state = torch.load(last, weights_only=True)
    state["callbacks"]["Timer"]["time_elapsed"]["train"] += 1000
    torch.save(state, last)
    train(composed(tmp_path, *own, "trainer.max_epochs=2", "ckpt_path=last"), tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["fit_seconds"] > 1000
    train(composed(tmp_path, *own, "trainer.max_epochs=3", "trainer.max_time=00:00:16:00", "ckpt_path=last"), tmp_path)
    assert "trainer.max_time is used up" in capsys.readouterr().out


def test_a_long_epoch_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Four batches an epoch of 20 s each: at 40 s, 80 s and so on a line, and the time that is left."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: clock.now))
    trainer = SimpleNamespace(
        current_epoch=0,
        max_epochs=2,
        max_steps=-1,
        num_training_batches=4,
        accumulate_grad_batches=2,
        global_step=2,
        callbacks=[],
        fit_loop=SimpleNamespace(total_batch_idx=0),
    )
    trainer.callback_metrics = {"train/loss": 0.5}
    lines = callbacks.EpochLines(every=30)
    for batch in range(4):
        clock.now += 20
        trainer.fit_loop.total_batch_idx = batch
        lines.on_train_batch_end(trainer, None, None, None, batch)  # type: ignore[arg-type]
    lines.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines() == [
        "epoch 1/2  batch 2/4  about 0:02:00 left",
        "epoch 1/2  batch 4/4  about 0:01:20 left",
        "epoch 1/2  80.0 s  train/loss 0.5000",
    ]
    trainer.callback_metrics["val/loss"] = 0.25  # which Lightning keeps until the next validation
    for trainer.sanity_checking in (True, False):
        lines.on_validation_end(trainer, None)  # type: ignore[arg-type]
        for _ in range(2):
            lines.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    shown = [line.partition(" s  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "train/loss 0.5000",
        "train/loss 0.5000",
        "train/loss 0.5000  val/loss 0.2500",
        "train/loss 0.5000",
    ]
    for trainer.max_steps, epochs in ((1, 1), (2, 1), (3, 2), (99, 2)):  # two steps an epoch
        lines.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
        assert capsys.readouterr().out.startswith(f"epoch 1/{epochs} ")
    lines.disable()
    clock.now += 100
    lines.on_train_batch_end(trainer, None, None, None, 0)  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""
