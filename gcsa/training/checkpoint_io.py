"""Checkpoints that a kill at any moment leaves whole."""

import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO


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
