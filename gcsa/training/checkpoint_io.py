"""Checkpoints that a kill at any moment leaves whole."""

import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO

from gcsa.checkpoints import read_checkpoint


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, then renames.

    Lightning's own writer goes through the system's temporary folder; where that is another file system the last
    step is a copy, and a kill during the copy would destroy the only checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        torch.save(checkpoint, part)
        os.replace(part, target)

    def load_checkpoint(self, path: str | os.PathLike[str], *_: Any, **__: Any) -> dict[str, Any]:
        """What is in `path`, read through the one door, in the folder where it is now.

        Lightning deletes the files that a checkpoint calls earlier best ones, and a run reads the best one: they are
        looked for beside the checkpoint, wherever it says that they are.
        """
        stored = read_checkpoint(Path(path))
        folder = Path(path).parent
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
