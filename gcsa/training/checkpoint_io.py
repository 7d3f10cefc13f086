"""Checkpoints that a kill at any moment leaves whole, and that only the run they belong to continues."""

import os
import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.callbacks import Checkpoint

from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError
from gcsa._utils.nested import flatten
from gcsa.data.identity import difference
from gcsa.training.interruption import Signals, first_process
from gcsa.weights import read_checkpoint

CONFIG = "gcsa_config"
"""Where a checkpoint keeps conf/train.yaml as plain values."""
DATA = "gcsa_data"
"""Where it keeps `SplitDataModule.identity`."""
MAY_CHANGE = (
    *("ckpt_path", "output_dir", "checkpoint_every_n_steps", "test", "threads", "logger*"),
    *("task.compile", "checkpoint_activations", "matmul_precision"),
    *("data.root", "data.path", "data.num_workers", "data.download", "data.max_memory_gb"),
    *("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy*"),
    *("trainer.max_epochs", "trainer.max_steps", "trainer.max_time", "trainer.log_every_n_steps", "trainer.enable_*"),
    *("callbacks.last*", "callbacks.learning_rate*", "callbacks.progress*"),
)
"""What a resumed run may do otherwise: how long, where, and what it shows; conf/train.yaml says so at `ckpt_path`."""
HANDED_BACK = ".temp.ckpt"
"""What Lightning calls the bare weights that a process of ddp_spawn hands back, in a new temporary folder."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, then renames.

    Lightning's own writer goes through the system's temporary folder; where that is another file system the last
    step is a copy, and a kill during the copy would destroy the only checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Raises OSError, in one sentence, where it cannot write; an earlier file of that name is then kept."""
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as part, part.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())  # some file systems say only here that they are full
        except (OSError, RuntimeError, UserError) as error:  # torch's writer turns the first into the second
            reasons = (getattr(at, "strerror", None) for at in (error, error.__cause__, error.__context__))
            kept = "the earlier one is kept" if target.exists() else "nothing was kept"
            raise OSError(
                f"cannot write the checkpoint {target} ({next(filter(None, reasons), 'the disk may be full')}), {kept}: make "
                f"space in {target.parent} or set another output_dir"
            ) from error

    def load_checkpoint(self, path: str | os.PathLike[str], *_: Any, **__: Any) -> dict[str, Any]:
        """What is in `path`, read through the one door, in the folder where it is now.

        Lightning deletes the files that a checkpoint calls earlier best ones, and a run reads the best one: they are
        looked for beside the checkpoint, wherever it says that they are.
        """
        if Path(path).name == HANDED_BACK:
            return torch.load(path, map_location="cpu", weights_only=True)
        stored = read_checkpoint(Path(path))
        folder = Path(path).resolve().parent  # as Lightning names it, or it forgets the best score
        for state in stored.get("callbacks", {}).values():
            for key in ("best_model_path", "kth_best_model_path", "last_model_path"):
                if state.get(key):
                    state[key] = str(folder / Path(state[key]).name)
            if "best_k_models" in state:
                state["best_k_models"] = {
                    str(folder / Path(name).name): score for name, score in state["best_k_models"].items()
                }
            if "dirpath" in state:
                state["dirpath"] = str(folder)
        return stored


def copy_best_checkpoints(path: Path, folder: Path) -> Path:
    """The checkpoint to resume in place of `path`, from another folder than `folder`, that of the run: a copy there, called
    last.ckpt, beside copies of its best epochs, with which later ones are to be compared. `path` itself where it already
    is there, or where the best epochs are not beside it. The first of several processes copies."""
    states = AtomicCheckpointIO().load_checkpoint(path).get("callbacks", {}).values()
    best = {state["best_model_path"] for state in states if state.get("best_model_path")}
    best = best.union(*(state.get("best_k_models", ()) for state in states))
    if path.resolve().parent == folder.resolve() or not best or not all(Path(name).is_file() for name in best):
        return path
    if first_process():
        folder.mkdir(parents=True, exist_ok=True)
        for source, name in [*((name, Path(name).name) for name in best), (path, "last.ckpt")]:
            with replacing(folder / name) as part:
                shutil.copyfile(source, part)
    return folder / "last.ckpt"


class LastCheckpoint(Checkpoint):
    """`dirpath`/last.ckpt: at the end of each epoch, every `every_n_steps` optimizer steps within it, and where a signal
    asks the run to stop, which it then does.

    Nothing is saved after the last batch of an epoch but before its validation: a run resumed from there would leave
    the validation out.
    """

    signals: Signals | None = None
    """Set by whoever handles them."""

    def __init__(self, dirpath: str | Path, every_n_steps: int | None = None) -> None:
        self.path = Path(dirpath) / "last.ckpt"
        self.every_n_steps = every_n_steps

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.signals is not None:
            self.signals.install()  # again: Lightning has just put its own there
            self.signals.deferred = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches != 0:
            return
        due = self.every_n_steps is not None and trainer.global_step % self.every_n_steps == 0
        self._save_if(trainer, due, batch_idx)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Reduces the epoch's metrics in all processes; a progress bar has asked for them in the first, which waits.
        _ = trainer.callback_metrics
        self._save_if(trainer, True, -1)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.signals is not None:
            self.signals.deferred = False
            if self.signals.received is not None:
                self.signals.stop()

    def _save_if(self, trainer: pl.Trainer, due: bool, batch_idx: int) -> None:
        asked = self.signals is not None and self.signals.asked(trainer, batch_idx)
        if due or asked:
            trainer.save_checkpoint(self.path)
        if self.signals is not None and asked:
            self.signals.stop()


class RunConfig(pl.Callback):
    """Keeps the configuration of a run, plain values, in each of its checkpoints, and what tells its data from others.

    Raises UserError where a run is resumed with other data.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.data: dict[str, Any] | None = None

    def _identity(self, trainer: pl.Trainer) -> dict[str, Any] | None:
        data: Any = getattr(trainer, "datamodule", None)
        if self.data is None and hasattr(data, "identity"):
            self.data = data.identity()
        return self.data

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Any) -> None:
        checkpoint[CONFIG] = self.config
        checkpoint[DATA] = self._identity(trainer)

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Any) -> None:
        before, now = checkpoint.get(DATA), self._identity(trainer)
        if before is None or now is None:
            return
        if words := difference(before, now):
            raise UserError(
                f"the run that is to be resumed had other data, which have now {words}: bring them back, or start another run in another "
                "output_dir",
                "checkpoint.other_data",
            )


def check_same_run(path: Path, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raises ValueError, naming the keys, where the checkpoint `path` belongs to a run with another configuration than
    `config` in more than `MAY_CHANGE`, or does not say.

    defaults: of options that the version which wrote it may not have had; one that is false, empty or 0 changes nothing either.
    """
    stored = read_checkpoint(path).get(CONFIG)
    if not isinstance(stored, dict):
        raise UserError(
            f"{path} does not say with which configuration it was made, so it cannot be resumed: train again",
            "checkpoint.no_config",
        )
    before, now = flatten(stored), flatten(config)
    changed = [
        f"{key}={show(now, key)} (it was {show(before, key)})"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
        and not any(fnmatchcase(key, pattern) for pattern in MAY_CHANGE)
        and not (key not in before and (not now[key] or now[key] == defaults.get(key)))
    ]
    if changed:
        more = f" and {len(changed) - 5} others" if len(changed) > 5 else ""
        raise UserError(
            f"{path} belongs to a run with other options than {', '.join(changed[:5])}{more}: resume it with its own "
            "(epochs, devices, loggers and the like may change), or start another run in another output_dir",
            "checkpoint.other_run",
        )


def show(values: Mapping[str, Any], key: str) -> Any:
    """A value as it is typed on the command line."""
    return "not given" if key not in values else "null" if values[key] is None else values[key]
