"""Restores the output folder of a run that is refused: Hydra creates it, and writes into it, before any check of ours."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

BY_HYDRA = {".hydra", "train.log", "multirun.yaml"}


@dataclass(frozen=True)
class DirectorySnapshot:
    """The output folder before Hydra began.

    Attributes:
        folder: of a run, or of all runs of `-m`.
        names: of the entries of `folder`.
        existing: which of `folder` and its parents existed.
    """

    folder: Path
    names: frozenset[str]
    existing: frozenset[Path]


_before: DirectorySnapshot | None = None


class OutputCleanup(Callback):
    """Takes the snapshot that `remove_leftovers` restores; conf/train.yaml and conf/evaluate.yaml name it."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        remember(Path(config.hydra.run.dir))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        remember(Path(config.hydra.sweep.dir))


def remember(folder: Path) -> None:
    """Takes the snapshot of `folder`."""
    global _before
    folder = folder.absolute()
    names = frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()
    _before = DirectorySnapshot(folder, names, frozenset(path for path in (folder, *folder.parents) if path.exists()))


def remove_leftovers(folder: Path) -> None:
    """Puts `folder`, the output folder of a run that was refused, back as it was before Hydra began.

    Does nothing where the run has written anything itself, and in a process that Hydra did not start the run from.
    """
    if _before is None:
        return
    folder = folder.absolute()
    _close_logs(folder)
    for path in (folder, *folder.parents):
        names = _before.names if path == _before.folder else frozenset()
        fresh = set(os.listdir(path)) - names
        if not fresh <= BY_HYDRA:
            return
        if not _was_there(path, _before):
            shutil.rmtree(path)
            continue
        if path == _before.folder:
            for name in fresh:
                _delete(path / name)
        return


def _was_there(path: Path, before: DirectorySnapshot) -> bool:
    if before.folder in path.parents:  # the folder of one run of several
        return path.relative_to(before.folder).parts[0] in before.names
    return path in before.existing


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _close_logs(folder: Path) -> None:
    """Lets go of the log file, which some systems do not delete while it is open."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, logging.FileHandler) and folder in Path(handler.baseFilename).parents:
            root.removeHandler(handler)
            handler.close()
