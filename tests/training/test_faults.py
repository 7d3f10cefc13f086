"""Faults on a real process: what a signal, a full disk or a second run leaves behind, and how the run goes on."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser

from gcsa._utils.errors import UserError
from gcsa.tasks.classification.task import Classifier, Task as Classification
from gcsa.training.interruption import LOCK, Interrupted, interruptible, requeued_checkpoint, resume_command
from tests.errors import raises
from tests.limits import largest_file
from tests.runs import TINY, composed, train
from tests.training.test_resume import ROOT, assert_same_state

LONGER = (*TINY, "data.limit_train=384")
"""Epochs of 12 steps."""
COMMAND = (sys.executable, "train.py", *LONGER)
DDP = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true")


def start(folder: Path, *more: str, **options: Any) -> "subprocess.Popen[str]":
    command = [*COMMAND, f"output_dir={folder}", *more]
    # A shell that starts the tests in the background ignores SIGINT, and its children would.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT} | heard | options
    return subprocess.Popen(command, **options)


def wait_for(process: "subprocess.Popen[str]", line: str) -> None:
    """Until the process has printed a line that begins so."""
    assert process.stdout is not None
    while not (printed := process.stdout.readline()).startswith(line):
        assert printed, f"ended without printing {line!r}: {process.communicate()[1]}"


def wait_for_epoch(process: "subprocess.Popen[str]", folder: Path) -> None:
    """Until the first epoch is printed and saved, so that what is saved later was saved because of a signal."""
    wait_for(process, "epoch 1/3")
    while not (folder / "checkpoints/last.ckpt").is_file():
        time.sleep(0.01)
        assert process.poll() is None


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code, and what was printed to stderr."""
    _, printed = process.communicate(timeout=300)
    return process.returncode, printed


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_sigterm_then_the_command_it_prints(tmp_path: Path) -> None:
    """Stopped in mid-epoch and resumed: the bits of a run that was never stopped. Meanwhile a second run is refused."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(composed(whole, *LONGER), whole)

    process = start(stopped)
    wait_for_epoch(process, stopped)
    process.send_signal(signal.SIGSTOP)  # so that nothing changes but by the second run
    before = contents(stopped)
    with raises("output_dir.busy"):
        train(composed(stopped, *LONGER, "ckpt_path=last"), stopped)
    assert contents(stopped) == before
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    code, printed = ended(process)
    assert code == 128 + signal.SIGTERM
    sentence = re.fullmatch(r"interrupted by SIGTERM: last.ckpt is saved, go on with: (python train\.py .*)\n", printed)
    assert sentence is not None, printed
    assert sorted(path.name for path in (stopped / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert not (stopped / LOCK).exists()
    assert not (stopped / "weights").exists()
    assert 12 < torch.load(stopped / "checkpoints/last.ckpt", weights_only=True)["global_step"] < 36

    train(composed(stopped, *shlex.split(sentence[1])[2:]), stopped)
    for name in ("last", "best"):
        assert_same_state(whole / f"checkpoints/{name}.ckpt", stopped / f"checkpoints/{name}.ckpt")


@pytest.mark.parametrize("name", ["plain-1.0", "a, b", "data=1", "a(b)", "it's", "pcam, 3 [x]"])
def test_the_printed_command_is_for_any_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    *_, folder = shlex.split(resume_command(Path("/runs", name)))
    (parsed,) = OverridesParser.create().parse_overrides([folder])
    assert (parsed.key_or_group, parsed.value()) == ("output_dir", f"/runs/{name}")


def test_sigint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In the third batch, which is finished; a shell that starts the tests in the background ignores SIGINT."""
    step = Classifier.training_step

    def interrupted(self: Classifier, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 2:
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Classifier, "training_step", interrupted)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted) as stopped:
            train(composed(tmp_path, *TINY), tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.value.code == 128 + signal.SIGINT
    sentence = r"interrupted by SIGINT: last.ckpt is saved, go on with: python train\.py .*\n"
    assert re.fullmatch(sentence, capsys.readouterr().err)
    assert torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 3


@pytest.mark.slow  # a process that imports torch and trains
def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """In an endless batch, which the first signal waits for."""
    script = (
        "import sys, time; sys.argv = ['train.py', *sys.argv[1:]]\n"
        "from gcsa.tasks.classification.module import Classifier\n"
        "def training_step(self, batch, batch_idx):\n"
        "    print('endless', flush=True)\n"
        "    while True: time.sleep(0.05)\n"
        "Classifier.training_step = training_step\n"
        "from gcsa.cli.train import main; main()\n"
    )
    command = [sys.executable, "-c", script, *TINY, f"output_dir={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    wait_for(process, "endless")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    code, printed = ended(process)
    assert code == -signal.SIGTERM
    assert printed.strip() == "interrupted by SIGTERM before anything was saved: start again"


@pytest.mark.slow  # four processes that import torch and train
def test_sigterm_stops_all_processes_of_a_run(tmp_path: Path) -> None:
    process = start(tmp_path, *DDP)
    wait_for_epoch(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    code, printed = ended(process)
    assert (code, printed.count("interrupted")) == (128 + signal.SIGTERM, 1), printed
    assert printed.splitlines()[-1].startswith("interrupted by SIGTERM: last.ckpt is saved")
    assert "Traceback" not in printed
    assert torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["global_step"] > 6
    assert ended(start(tmp_path, *DDP, "ckpt_path=last"))[0] == 0
    assert (tmp_path / "results.json").is_file()


@pytest.mark.slow  # two processes that import torch and train
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_slurm_starts_the_same_command_again(tmp_path: Path, name: str) -> None:
    """SIGTERM is what preemption sends; SIGUSR1 is asked for by `sbatch --signal=USR1@90`, and must ask for the job."""
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/asked"\n')
    (tmp_path / "scontrol").chmod(0o755)
    job = os.environ | {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = start(tmp_path / "run", env=job)
    wait_for_epoch(process, tmp_path / "run")
    process.send_signal(getattr(signal, name))
    code, printed = ended(process)
    assert code == 128 + getattr(signal, name)
    assert printed.startswith(f"interrupted by {name}: last.ckpt is saved")
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == {"SIGTERM": "", "SIGUSR1": "requeue 7\n"}[name]
    step = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["global_step"]
    assert 12 < step < 36
    assert ended(start(tmp_path / "run", env=job | {"SLURM_RESTART_COUNT": "1"}))[0] == 0
    assert (tmp_path / "run/results.json").is_file()


def test_slurm_may_not_start_a_command_over_in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = composed(tmp_path / "new", *TINY)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert requeued_checkpoint(tmp_path) is None, "the folder was given"
    started = SimpleNamespace(overrides=SimpleNamespace(task=["seed=0"]), launcher="basic")
    monkeypatch.setattr(HydraConfig, "get", lambda: started)
    with raises("output_dir.requeued"):
        train(cfg, tmp_path / "new")
    (tmp_path / "new/checkpoints").mkdir(parents=True)
    (tmp_path / "new/checkpoints/last.ckpt").touch()
    with raises("checkpoint.damaged"):  # read in place of the other
        train(composed(tmp_path / "new", *TINY, "ckpt_path=what_it_began_from.ckpt"), tmp_path / "new")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
    assert requeued_checkpoint(tmp_path) is None


def test_a_full_disk(tmp_path: Path) -> None:
    """No file may grow beyond half of a checkpoint."""
    train(composed(tmp_path, *TINY, "trainer.max_epochs=1", "data.limit_train=32", "callbacks=no_ema"), tmp_path)
    before = contents(tmp_path / "checkpoints")
    longer = ("trainer.max_epochs=2", "data.limit_train=32", "callbacks=no_ema", "ckpt_path=last")
    with (
        largest_file(len(before["last.ckpt"]) // 2),
        pytest.raises(
            OSError, match=r"cannot write the checkpoint .*\.ckpt \(File too large\), the earlier one is kept"
        ),
    ):
        train(composed(tmp_path, *TINY, *longer), tmp_path)
    assert contents(tmp_path / "checkpoints") == before


def test_a_signal_after_training_says_what_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Classification, "measure", killed)
    monkeypatch.setattr(sys, "argv", ["/bin/gcsa"])
    small = [*TINY, "trainer.max_epochs=1", "data.limit_train=32", "test=true"]
    with pytest.raises(Interrupted) as stopped:
        train(composed(tmp_path, *small), tmp_path)
    assert stopped.value.code == 128 + signal.SIGTERM
    printed = capsys.readouterr().err
    assert re.fullmatch(
        r"interrupted by SIGTERM: checkpoints and weights are saved, go on with: gcsa train .* ckpt_path=last .*\n",
        printed,
    )
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.undo()
    assert train(composed(tmp_path, *small, "ckpt_path=last"), tmp_path) > 0
    assert (tmp_path / "results.json").is_file()


@pytest.mark.parametrize("callbacks", ["default", "no_ema"])
def test_weights_that_are_not_finite_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callbacks: str
) -> None:
    """The last step spoils them, after a loss that was fine: the best epoch before it stays, nothing is exported."""
    step = Classifier.optimizer_step

    def spoil(self: Classifier, epoch: int, *rest: Any) -> None:
        step(self, epoch, *rest)
        if epoch == 1:
            self.model.bn1.weight.data[0] = float("inf")

    monkeypatch.setattr(Classifier, "optimizer_step", spoil)
    short = ("data.limit_train=32", "trainer.max_epochs=2", f"callbacks={callbacks}")
    with pytest.raises(FloatingPointError, match=r"hold NaN or infinity after step 2, first in model\.bn1\.weight"):
        train(composed(tmp_path, *TINY, *short), tmp_path)
    for name in ("best", "last"):
        stored = torch.load(tmp_path / f"checkpoints/{name}.ckpt", weights_only=True)
        assert stored["global_step"] == 1
        assert all(tensor.isfinite().all() for tensor in stored["state_dict"].values())
    assert not (tmp_path / "weights").exists()


def test_a_damaged_test_set_costs_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the check before training could not see it."""

    def damaged(*_: Any) -> None:
        raise UserError("digits are damaged")

    monkeypatch.setattr("gcsa.tasks.classification.data.digits.Digits.read_test", damaged)
    small = [*TINY, "trainer.max_epochs=1", "data.limit_train=32", "test=true"]
    with raises("training.test"):
        train(composed(tmp_path, *small), tmp_path)
    assert (tmp_path / "weights/model.safetensors").is_file()
    assert not (tmp_path / "results.json").exists()


def test_systems_without_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS and Windows are."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert train(composed(tmp_path, *TINY, "trainer.max_epochs=1", "data.limit_train=32"), tmp_path) > 0


def test_systems_without_user_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Windows is."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delattr(signal, "SIGUSR1", raising=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a script
    try:
        with pytest.raises(Interrupted), interruptible(tmp_path):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As under nohup, or in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible(tmp_path) as signals:
            signal.raise_signal(signal.SIGINT)
        assert signals.received is None
    finally:
        signal.signal(signal.SIGINT, before)
