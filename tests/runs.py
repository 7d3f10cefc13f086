"""A complete small run: 3 epochs of 4 batches of digits, a tiny timm model with batch norm and dropout, on one thread."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, open_dict

from gcsa.tasks import get_task
from gcsa.tasks.classification.evaluate import summarize
from gcsa.training import run

CONF = Path(__file__).parents[1] / "conf"
TINY = (
    "model=timm",
    "model.name=test_efficientnet",
    "+model.drop_rate=0.2",
    "data.batch_size=32",
    "data.limit_train=128",
    "data.augment.degrees=20",
    "trainer.max_epochs=3",
    "logger=none",
    "test=false",
    "threads=1",
)


@cache
def composition(*choices: str) -> DictConfig:
    """conf/train.yaml with other files of conf/; composing it takes most of the time of a test that trains nothing."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", list(choices), return_hydra_config=True)


def composed(output_dir: Path, *overrides: str) -> DictConfig:
    """conf/train.yaml as `train.py` would see it, with `output_dir`."""
    overrides = (f"output_dir={output_dir}", *overrides)
    choices = [text for text in overrides if (CONF / text.partition("=")[0]).is_dir()]
    cfg = copy.deepcopy(composition(*choices))
    values = OverridesParser.create().parse_overrides([text for text in overrides if text not in choices])
    ConfigLoaderImpl._apply_overrides_to_config(values, cfg)  # after all choices, as Hydra does
    with open_dict(cfg):
        cfg.hydra.overrides.task = list(overrides)
        cfg.hydra.runtime.output_dir = cfg.output_dir
        HydraConfig.instance().set_config(cfg)
        del cfg.hydra
    return cfg


@contextmanager
def watched_by(callback: pl.Callback) -> Iterator[None]:
    """Every run in the block has `callback` in front of the others."""
    build = run.build_trainer

    def watched(*args: Any) -> pl.Trainer:
        trainer = build(*args)
        trainer.callbacks.insert(0, callback)
        return trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "build_trainer", watched)
        yield


class Interrupted(RuntimeError):
    """Stands in for a kill."""


class InterruptAt(pl.Callback):
    """Raises Interrupted at the start of training batch `batch`, counted over epochs."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_start(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.fit_loop.total_batch_idx == self.batch:
            raise Interrupted


@contextmanager
def killed_at(batch: int) -> Iterator[None]:
    """The run in the block ends at the start of training batch `batch`, counted over epochs."""
    with watched_by(InterruptAt(batch)), pytest.raises(Interrupted):
        yield


def train(cfg: DictConfig, output_dir: Path) -> float:
    """What `train.py` does with `cfg`, but for the rotation curve, which is of 64 images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gcsa.tasks.classification.task.summarize", partial(summarize, seconds=0))
        return run.train(get_task(cfg.task.name), cfg, output_dir)
