"""A task of one's own: one folder, a file of conf/task and one of conf/data, and no edit of gcsa. Its images are augmented and loaded by what
the tasks of gcsa share."""

import sys
from pathlib import Path

import pytest
import torch

import gcsa
from gcsa.tasks import list_tasks
from gcsa.weights import read
from tests.errors import raises

from .conftest import Run

PACKAGE = {
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
import torch
from dataclasses import dataclass
from typing import Annotated

from torchmetrics import MeanSquaredError

from gcsa._utils.options import Options
from gcsa.data.augment import Augmentation
from gcsa.data.datamodule import SplitDataModule
from gcsa.data.loaders import ImageSet
from gcsa.models.create import create_model
from gcsa.training.module import TaskModule
from gcsa.weights import Weights, write

SIZES = {"num_classes": 1, "in_chans": 1}


class Images(SplitDataModule):
    def __init__(self, augment, **options):
        super().__init__(**options)
        self.augment = Augmentation.from_config(augment)

    def make_fit(self):
        images = torch.rand(4, 1, 28, 28)
        rows = torch.arange(4)
        return tuple(
            ImageSet(images, images.mean((1, 2, 3)), rows, mean=[0.0], std=[1.0], augment=augment)
            for augment in (self.augment, None)
        )

    def make_test(self):
        return self.make_fit()[1]

    def make_loader(self, split, *, shuffle=False):
        return self.batches(self.split(split), 4, shuffle=shuffle)


@dataclass(frozen=True, kw_only=True)
class BrightnessOptions(Options):
    power: Annotated[float, "of the difference"] = 2.0


class Module(TaskModule):
    task = "brightness"

    def __init__(self, model, optimizer, schedule, power=2.0, adapter=None):
        super().__init__(create_model(**model, **SIZES), lambda: {"loss": MeanSquaredError()}, optimizer, schedule, adapter)

    def training_loss(self, batch):
        return (self(batch[0])[:, 0] - batch[1]).abs().pow(self.hparams["power"]).mean()

    def evaluate_batch(self, batch, stage):
        self.metrics[stage].update(self(batch[0])[:, 0].contiguous(), batch[1])


class Task:
    module = Module
    options = BrightnessOptions
    monitored = {"val/loss": "min"}

    def build_data(self, cfg):
        data = {key: value for key, value in cfg["data"].items() if key != "name"}
        return Images(seed=cfg["seed"], **data)

    def build_module(self, cfg, data):
        optimizer = dict(cfg["optimizer"])
        return Module(cfg["model"], schedule=optimizer.pop("schedule"), optimizer=optimizer, power=cfg["task"]["power"])

    def export(self, module, data, folder):
        options = {key: value for key, value in module.hparams["model"].items() if key != "name"}
        weights = Weights("", "brightness", module.hparams["model"]["name"], {**options, **SIZES}, module.model.state_dict())
        return str(write(weights, folder))

    def count_flops(self, module, data):
        return 0
""",
}


CONF = {
    "task": "name: brightness\npower: 2.0\n",
    "data": """
defaults:
  - override /task@_global_.task: brightness
  - _self_

name: brightness
batch_size: 2
num_workers: 0
limit_train: null
augment:
  degrees: 20.0
""",
}


def test_a_package_and_two_yaml_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in PACKAGE.items():
        file = tmp_path / "brightness_task" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    for group, content in CONF.items():
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / "brightness.yaml").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    chosen = [f"hydra.searchpath=[file://{tmp_path}/conf]", "data=brightness", "imports=[brightness_task]"]
    sizes = ["model.depth=1", "model.fields=4", "model.group=c4", "monitor.metric=val/loss", "monitor.mode=min"]
    short = ["trainer.max_epochs=1", "trainer.limit_train_batches=1", "test=false", "logger=none", "threads=1"]
    try:
        code, out, err = run("train", *chosen, *sizes, *short, f"output_dir={tmp_path}/run")
        assert code == 0, err
        code, _, err = run("train", *chosen, *sizes, *short, "task.power=steep", f"output_dir={tmp_path}/refused")
        assert (code, "power=steep must be a number" in err) == (2, True)
        assert "brightness" in list_tasks()
        assert read(tmp_path / "run/weights").task == read(tmp_path / "run/checkpoints/best.ckpt").task == "brightness"
        predictor = gcsa.load(tmp_path / "run/weights", task="brightness")
        assert (predictor.kind, predictor.group.name) == ("brightness", "c4")
        assert isinstance(predictor.predict(torch.rand(1, 28, 28)), float)
        with raises("weights.task"):
            gcsa.load(tmp_path / "run/weights", task="classification")
    finally:
        from gcsa import tasks

        tasks._PACKAGES.pop("brightness", None)
        for name in [name for name in sys.modules if name.startswith("brightness_task")]:
            del sys.modules[name]


def test_weights_of_a_task_that_is_not_registered(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"task": "os.system", "architecture": "gcsa_tiny"}')
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with raises("task"):
        gcsa.load(tmp_path)
