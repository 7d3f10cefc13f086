"""A task of one's own: one folder and one YAML file, and no edit of gcsa."""

import sys
from pathlib import Path

import pytest
import torch

import gcsa
from gcsa.tasks import list_tasks
from gcsa.weights import read

from .conftest import Run

ROOM = {
    "__init__.py": """
from gcsa.tasks import register_task

register_task("brightness", __name__)
""",
    "predict.py": """
from gcsa.models.create import create_model
from gcsa.tasks.base import Predictor
from gcsa.weights import fill


class Brightness(Predictor):
    kind = "brightness"

    def predict(self, images, **options):
        return self.network(images[None]).item()


def make_predictor(weights, adapter=None):
    return Brightness(fill(lambda: create_model(weights.architecture, **weights.options), weights), None)
""",
    "task.py": """
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError

from gcsa.models.create import create_model
from gcsa.training.module import TaskModule
from gcsa.weights import Weights, write

SIZES = {"num_classes": 1, "in_chans": 1}


class Images(pl.LightningDataModule):
    def train_dataloader(self):
        images = torch.rand(4, 1, 28, 28)
        return DataLoader(TensorDataset(images, images.mean((1, 2, 3))), batch_size=2)

    val_dataloader = train_dataloader


class Module(TaskModule):
    task = "brightness"

    def __init__(self, model, optimizer, schedule, adapter=None):
        super().__init__(create_model(**model, **SIZES), lambda: {"loss": MeanSquaredError()}, optimizer, schedule, adapter)

    def training_loss(self, batch):
        return (self(batch[0])[:, 0] - batch[1]).square().mean()

    def evaluate_batch(self, batch, stage):
        self.metrics[stage].update(self(batch[0])[:, 0].contiguous(), batch[1])


class Task:
    module = Module
    reads = ()
    monitored = {"val/loss": "min"}

    def build_data(self, cfg):
        return Images()

    def build_module(self, cfg, data):
        optimizer = dict(cfg["optimizer"])
        return Module(cfg["model"], schedule=optimizer.pop("schedule"), optimizer=optimizer)

    def export(self, module, data, folder):
        options = {key: value for key, value in module.hparams["model"].items() if key != "name"}
        weights = Weights("", "brightness", module.hparams["model"]["name"], {**options, **SIZES}, module.model.state_dict())
        return str(write(weights, folder))

    def count_flops(self, module, data):
        return 0
""",
}


def test_a_room_and_a_yaml_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in ROOM.items():
        file = tmp_path / "brightness_room" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    (tmp_path / "conf/data").mkdir(parents=True)
    (tmp_path / "conf/data/brightness.yaml").write_text("task: brightness\nname: brightness\nbatch_size: 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    chosen = [f"hydra.searchpath=[file://{tmp_path}/conf]", "data=brightness", "imports=[brightness_room]"]
    sizes = ["model.depth=1", "model.fields=4", "model.group=c4", "monitor.metric=val/loss", "monitor.mode=min"]
    short = ["trainer.max_epochs=1", "trainer.limit_train_batches=1", "test=false", "logger=none", "threads=1"]
    try:
        code, out, err = run("train", *chosen, *sizes, *short, f"output_dir={tmp_path}/run")
        assert code == 0, err
        assert "brightness" in list_tasks()
        assert read(tmp_path / "run/weights").task == read(tmp_path / "run/checkpoints/best.ckpt").task == "brightness"
        predictor = gcsa.load(tmp_path / "run/weights", task="brightness")
        assert (predictor.kind, predictor.group.name) == ("brightness", "c4")
        assert isinstance(predictor.predict(torch.rand(1, 28, 28)), float)
        with pytest.raises(ValueError, match="for brightness: name weights for classification"):
            gcsa.load(tmp_path / "run/weights", task="classification")
    finally:
        from gcsa import tasks

        tasks._ROOMS.pop("brightness", None)
        for name in [name for name in sys.modules if name.startswith("brightness_room")]:
            del sys.modules[name]


def test_weights_of_a_task_that_is_not_registered(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"task": "os.system", "architecture": "gcsa_tiny"}')
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(ValueError, match=r"task.*os\.system"):
        gcsa.load(tmp_path)
