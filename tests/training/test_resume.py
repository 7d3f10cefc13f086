"""A run that was interrupted and resumed ends with the bits of one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs import TINY, composed, killed_at, train

ROOT = Path(__file__).parents[2]
EVERY = 3
"""Steps between checkpoints; an epoch has 4."""


def fit(folder: Path, *overrides: str) -> None:
    train(composed(folder, *TINY, *overrides), folder)


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two nested states differ, bit for bit."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = first.keys() | second.keys()
        return [d for key in keys for d in differences(first.get(key), second.get(key), f"{path}.{key}")]
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return [] if torch.equal(first, second) else [path]
    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        return [d for i, (a, b) in enumerate(zip(first, second, strict=True)) for d in differences(a, b, f"{path}/{i}")]
    return [] if first == second else [path]


def assert_same_state(first: Path, second: Path) -> None:
    """Weights, their average, optimizer and schedule of two checkpoints are equal, bit for bit."""
    states = [torch.load(path, weights_only=True) for path in (first, second)]
    assert states[0]["global_step"] == states[1]["global_step"]
    for key in ("state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers"):
        assert differences(states[0][key], states[1][key]) == [], key


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    fit(folder)
    return folder


@pytest.mark.parametrize(
    ("every", "batch"),
    [("null", 6), (f"{EVERY}", 7), (f"{EVERY}", 8)],
    ids=["from an epoch's end", "from mid-epoch", "in the first batch of an epoch"],
)
def test_resumes_bit_for_bit(whole: Path, tmp_path: Path, every: str, batch: int) -> None:
    with killed_at(batch):
        fit(tmp_path, f"checkpoint_every_n_steps={every}")
    fit(tmp_path, f"checkpoint_every_n_steps={every}", "ckpt_path=last")
    for name in ("last", "best"):
        assert_same_state(whole / f"checkpoints/{name}.ckpt", tmp_path / f"checkpoints/{name}.ckpt")


def test_views_augmented_on_the_device_resume_in_mid_epoch(tmp_path: Path) -> None:
    options = (
        "data.views=2",
        "data.augment_on_device=true",
        "task.consistency=1",
        "task.instance_loss=0.2",
        "trainer.max_epochs=2",
    )
    options += (f"checkpoint_every_n_steps={EVERY}",)
    fit(tmp_path / "whole", *options)
    with killed_at(7):
        fit(tmp_path / "resumed", *options)
    fit(tmp_path / "resumed", *options, "ckpt_path=last")
    assert_same_state(*(tmp_path / name / "checkpoints/last.ckpt" for name in ("whole", "resumed")))


STILL = ("data.limit_train=32", "optimizer.lr=1e-12")
"""A second epoch learns nothing, so that it is not better than the first."""


def test_the_best_epoch_is_kept_whatever_its_folder_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a link, then without it from a path that is relative."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    fit(tmp_path / "linked", *STILL, "trainer.max_epochs=1")
    for epochs, folder, ckpt_path in ((2, "linked", "last"), (3, "real", "linked/checkpoints/last.ckpt")):
        fit(tmp_path / folder, *STILL, f"trainer.max_epochs={epochs}", f"ckpt_path={ckpt_path}")
        assert json.loads((tmp_path / folder / "results.json").read_text())["best_epoch"] == 1


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one epoch."""
    folder = tmp_path_factory.mktemp("first")
    fit(folder, *STILL, "trainer.max_epochs=1")
    return folder


@pytest.mark.parametrize("name", ["last", "best"])
def test_the_best_epoch_goes_along_to_another_folder(first: Path, tmp_path: Path, name: str) -> None:
    """And the run that was resumed stays as it is."""
    second = tmp_path / "second"
    before = {path.name: path.read_bytes() for path in first.glob("checkpoints/*")}
    fit(second, *STILL, "trainer.max_epochs=2", f"ckpt_path={first}/checkpoints/{name}.ckpt")
    assert json.loads((second / "results.json").read_text())["best_epoch"] == 1
    assert {path.name for path in second.glob("checkpoints/*")} == {"best.ckpt", "last.ckpt"}
    assert before == {path.name: path.read_bytes() for path in first.glob("checkpoints/*")}


def test_random_numbers_matter(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: where the seed of a step is lost, the same comparison finds other weights."""
    with killed_at(7):
        fit(tmp_path, f"checkpoint_every_n_steps={EVERY}")
    monkeypatch.setattr("gcsa.training.callbacks.StepSeed.on_train_batch_start", lambda *_: None)
    fit(tmp_path, f"checkpoint_every_n_steps={EVERY}", "ckpt_path=last")
    with pytest.raises(AssertionError):
        assert_same_state(whole / "checkpoints/last.ckpt", tmp_path / "checkpoints/last.ckpt")


@pytest.mark.slow  # three processes that each import torch and train: half a minute to a minute on two cores
def test_survives_kill_9(tmp_path: Path) -> None:
    command = [sys.executable, "train.py", *TINY, "data.limit_train=null", "checkpoint_every_n_steps=7"]

    def start(folder: Path, *more: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([*command, f"output_dir={folder}", *more], cwd=ROOT, stdout=subprocess.DEVNULL)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole).wait(300) == 0
    process = start(killed)
    last = killed / "checkpoints/last.ckpt"
    deadline = time.monotonic() + 120
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    step = torch.load(last, weights_only=True)["global_step"]
    assert step % 40 != 0, "the kill was meant to come in mid-epoch"
    assert start(killed, "ckpt_path=last").wait(300) == 0
    for name in ("last", "best"):
        assert_same_state(whole / f"checkpoints/{name}.ckpt", killed / f"checkpoints/{name}.ckpt")
