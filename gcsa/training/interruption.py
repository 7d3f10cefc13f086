"""How a run ends before its end: one run a folder, and signals that stop it where it can be resumed.

The first SIGTERM or SIGINT (under SLURM also SIGUSR1, which `sbatch --signal=USR1@90` sends before the time is over)
lets the batch be finished, saves last.ckpt and leaves with 128 + the signal's number; a second one ends the process at
once. Lightning's own handlers save nothing, or save in the middle of a batch, so they are replaced while it trains.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from pytorch_lightning.utilities import rank_zero_only
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from gcsa._utils.errors import UserError
from gcsa._utils.program import train_command

LOCK = ".lock"


class Interrupted(SystemExit):
    """Ends the program because of a signal, with the exit code that a shell reports for it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


class Signals:
    """The signals that ask a run to stop.

    While `deferred` is true, the first only sets `received`, and the run stops where it can be resumed; otherwise
    `Interrupted` is raised where the program is.
    """

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir
        self.received: int | None = None
        self.deferred = False
        self.trainer: pl.Trainer | None = None
        """Its processes, where it starts some itself (ddp_spawn), are told."""
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For the processes that train: they replace handlers of their own."""
        return {**self.__dict__, "trainer": None, "_before": {}}

    def install(self) -> None:
        """Replaces the handlers of this process, but those that ignore a signal (nohup)."""
        if threading.current_thread() is not threading.main_thread():
            return
        names = ["SIGTERM", "SIGINT"] + ["SIGUSR1"] * ("SLURM_JOB_ID" in os.environ)
        for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:  # Windows lacks the last
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                signal.signal(number, self._handle)
                self._before.setdefault(number, before)

    def restore(self) -> None:
        """Puts back the handlers that `install` replaced first."""
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        self._before = {}

    def asked(self, trainer: pl.Trainer, batch: int) -> bool:
        """Whether the processes of a fit stop after the optimizer step of `batch`, counted from 0 in its epoch.

        They must all do so at once, which they agree upon at every step, and on devices, where that waits for the
        device, at every logged one.
        """
        if trainer.world_size == 1:
            return self.received is not None
        device = trainer.strategy.root_device.type
        every = 1 if device == "cpu" else trainer.log_every_n_steps  # type: ignore[attr-defined]
        if (batch + 1) // trainer.accumulate_grad_batches % every != 0:
            return False
        return trainer.strategy.reduce_boolean_decision(self.received is not None, all=False)

    def stop(self) -> None:
        """Raises Interrupted, where `asked` was true; another process may have had the signal."""
        raise Interrupted(self.received or signal.SIGTERM)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.received = self.received is None, number
        if os.getpid() != self._process:  # a process that trains for the first one, or loads for it
            return
        processes = self._processes()
        for process in processes:
            process.terminate() if first else process.kill()
        if not first:
            # Nothing that takes time, and nothing that could fail: not even Python's own way out.
            os.write(2, f"\n{self.sentence()}\n".encode())
            signal.signal(number, signal.SIG_DFL)
            os.kill(self._process, number)
        elif not (self.deferred or processes):
            raise Interrupted(number)

    def _processes(self) -> list[Any]:
        launcher = None if self.trainer is None else self.trainer.strategy.launcher
        return [p for p in getattr(launcher, "procs", ()) if hasattr(p, "is_alive") and p.is_alive()]

    def sentence(self) -> str:
        """What happened, what is safe, and how to go on."""
        name = signal.Signals(self.received or signal.SIGTERM).name
        if (self.output_dir / "checkpoints/last.ckpt").is_file():
            safe = "checkpoints and weights are" if (self.output_dir / "weights").is_dir() else "last.ckpt is"
            return f"interrupted by {name}: {safe} saved, go on with: {resume_command(self.output_dir)}"
        return f"interrupted by {name} before anything was saved: start again"


def first_process() -> bool:
    """Whether this is the first of the processes that train one model, which speaks for all."""
    return int(getattr(rank_zero_only, "rank", 0)) == 0


def resume_command(output_dir: Path) -> str:
    """What to type to resume the run in `output_dir`, started as this one was."""
    given = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
    kept = [override for override in given if override.split("=")[0].lstrip("+~") not in ("ckpt_path", "output_dir")]
    folder = str(output_dir)
    if not re.fullmatch(r"[\w./+-]+", folder):  # Hydra reads more than a word in it
        folder = "'{}'".format(folder.replace("'", r"\'"))
    return train_command(*kept, "ckpt_path=last", f"output_dir={folder}")


@contextmanager
def interruptible(output_dir: Path) -> Iterator[Signals]:
    """Handles signals in the block; says in a sentence on stderr how to go on after one, and raises Interrupted."""
    signals = Signals(output_dir)
    signals.install()
    try:
        yield signals
    except (Interrupted, RuntimeError, ProcessExitedException, ProcessRaisedException) as error:
        # The others are what a signal leads to where it also ends processes that load or train.
        if signals.received is None and not isinstance(error, Interrupted):
            raise
        if first_process():
            print(signals.sentence(), file=sys.stderr, flush=True)
            if signals.received is not None and signals.received == getattr(signal, "SIGUSR1", None):
                requeue()
        signals.stop()
    finally:
        signals.restore()


def requeue() -> None:
    """Has SLURM start this job again, as Lightning's own handler would."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    with suppress(OSError):
        subprocess.run(["scontrol", "requeue", job], check=False)


def requeued_checkpoint(output_dir: Path) -> str | None:
    """What a job that SLURM started before resumes by itself, whatever it began from: "last"; None where it had saved
    nothing, and for other jobs.

    Raises ValueError where such a job was given no folder: each start makes a new one, in which it would start over.
    """
    if int(os.environ.get("SLURM_RESTART_COUNT", 0)) == 0:
        return None
    if (output_dir / "checkpoints/last.ckpt").is_file():
        return "last"
    if HydraConfig.initialized():
        given = any(override.startswith("output_dir=") for override in HydraConfig.get().overrides.task)
        if not given and "submitit" not in str(HydraConfig.get().launcher):  # which keeps the folder of the first start
            raise UserError(
                f"SLURM started this job again, and in {output_dir}, a new folder, it would start over: submit it with an "
                "output_dir, which may be the earlier one, with ckpt_path=last",
                "output_dir.requeued",
            )
    return None


@contextmanager
def only_run_in(output_dir: Path) -> Iterator[None]:
    """Holds a lock on `output_dir`, which the system frees whatever ends the process; of several processes that train
    one model the first holds it. Raises ValueError where another run has it."""
    if not first_process():
        yield
        return
    output_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(output_dir / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another run is writing into {output_dir}: wait for its end, or set another output_dir", "output_dir.busy"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows keeps open files
            (output_dir / LOCK).unlink()
        lock.release()
