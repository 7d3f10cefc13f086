"""One of two processes that train together, as torchrun would start it: `python two_processes.py JSON`, in which a list of
[folder, port, overrides] says which runs to make one after the other. The losses of each go to losses-RANK.json in its folder."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.runs import composed, train, watched_by


class Losses(pl.Callback):
    """The training loss of every batch, of this process's share alone; Lightning divides it by the batches of a step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.values.append(float(outputs["loss"]))


def record(cfg: DictConfig, folder: Path) -> list[float]:
    """`run.train`, and the loss of every batch of this process."""
    losses = Losses()
    with watched_by(losses):
        train(cfg, folder)
    return losses.values


if __name__ == "__main__":
    torch.set_num_threads(1)
    for folder, port, overrides in json.loads(sys.argv[1]):
        os.environ["MASTER_PORT"] = str(port)
        values = record(composed(Path(folder), *overrides), Path(folder))
        Path(folder, f"losses-{os.environ['RANK']}.json").write_text(json.dumps(values))
