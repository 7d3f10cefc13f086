"""What train.py and evaluate.py do with the task of this room; see `gcsa.training.task`."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.evaluation.cost import count_flops
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from gcsa.tasks.recognition.evaluate import evaluate_lines
from gcsa.tasks.recognition.measure import measure as measure_reading
from gcsa.tasks.recognition.module import Recognizer
from gcsa.training.adapt import check_adapter
from gcsa.training.task import data_options
from gcsa.weights import read, save_recognizer

COUNTED_WIDTH = 480
"""Pixels of the line whose FLOPs are counted: about the median of a printed line 40 pixels high."""

Batch = tuple[Tensor, Tensor, Tensor, list[str]]

COUNTED_WIDTH = 480


class Task:
    """The task of data sets whose images are lines of text; see `Task`."""

    module = Recognizer
    monitored = ("val/cer", "val/wer", "val/loss")

    def build_data(self, cfg: dict[str, Any]) -> LinesDataModule:
        """The data module of `cfg["data"]`, with the charset of the adapter's base to continue where there is one.

        Raises ValueError for options that it refuses, and whatever `gcsa.weights.read` does.
        """
        options = data_options(cfg)
        del options["name"]
        if cfg.get("adapter") is not None and options["charset"] is None:
            check_adapter(cfg["adapter"])
            options["charset"] = read(cfg["adapter"]["base"]).characters
        try:
            return LinesDataModule(**options)
        except TypeError as error:
            raise UserError(f"data=lines does not take these options: {error}") from error

    def build_module(self, cfg: dict[str, Any], data: LinesDataModule) -> Recognizer:
        """The recogniser of `cfg` for the charset of `data`. Raises ValueError for arguments that it refuses."""
        if cfg["compile"]:
            raise UserError("compile=true is for classifiers, and a recogniser is not compiled: leave compile=false")
        model = {key: value for key, value in cfg["model"].items() if value is not None and key != "img_size"}
        optimizer = dict(cfg["optimizer"])
        module = Recognizer(
            model={"height": data.height, **model},
            characters=data.charset.characters,
            schedule=optimizer.pop("schedule"),
            optimizer=optimizer,
        )
        if data.step % module.model.stride != 0:
            raise UserError(f"data.step={data.step} must be a multiple of {module.model.stride}, the encoder's stride")
        data.pixels_per_step = module.model.stride / module.model.steps
        return module

    def export(self, recognizer: Recognizer, data: LinesDataModule, folder: Path) -> str:
        """Writes the weights into `folder`, for transcribe.py; returns it."""
        return str(save_recognizer(recognizer.model, folder, {"data": data.script or data.name}))

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """How a recogniser reads lines, see `evaluate_lines`."""
        return evaluate_lines(config, self.build_data({**config, "adapter": None}))

    def count_flops(self, recognizer: Recognizer, data: LinesDataModule) -> int:
        """FLOPs of a line of `COUNTED_WIDTH` pixels."""
        return count_flops(recognizer.model, torch.zeros(1, data.height, COUNTED_WIDTH))

    def measure(
        self, recognizer: Recognizer, data: LinesDataModule, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """How the test lines are read, upright and turned, and lines for the screen."""
        rates = {
            f"test/{name}": value for name, value in measure_reading(recognizer.model, data.test_dataloader()).items()
        }
        lines = {"test CER": f"{rates['test/cer']:.4f}", "test WER": f"{rates['test/wer']:.4f}"}
        if "test/same_when_turned" in rates:
            lines["read the same at any quarter turn"] = f"{rates['test/same_when_turned']:.4f} of the lines"
        return rates, lines
