"""What train.py and gcsa evaluate do with lines of text; see `gcsa.training.task`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch

from gcsa._utils.errors import UserError
from gcsa._utils.options import Options
from gcsa.evaluation.cost import count_flops
from gcsa.tasks import load
from gcsa.tasks.evaluating import check_config, chosen_device, content, evenly_spread, show
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.charset import stored_characters
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from gcsa.tasks.recognition.data.lines import SPLITS
from gcsa.tasks.recognition.evaluate import NAMES, measure
from gcsa.tasks.recognition.module import Recognizer
from gcsa.tasks.recognition.predict import RecognitionPredictor, stored_calibration
from gcsa.training.adapt import check_adapter
from gcsa.training.task import data_options, make_data, model_options
from gcsa.weights import read

COUNTED_WIDTH = 480
"""Pixels of the line whose FLOPs are counted: about the median of a printed line 40 pixels high."""


class Task:
    """The task of data sets whose images are lines of text."""

    module = Recognizer
    options = Options
    monitored: ClassVar = dict.fromkeys(("val/cer", "val/wer", "val/loss"), "min")

    def build_data(self, cfg: dict[str, Any]) -> LinesDataModule:
        """The data module of `cfg["data"]`, with the charset of the adapter's base to continue where there is one.

        Raises ValueError for options that it or the recogniser refuses, and as `gcsa.weights.read`.
        """
        options = data_options(cfg)
        if cfg.get("adapter") is not None:
            check_adapter(cfg["adapter"])
            if options["charset"] is None:
                make_data(LinesDataModule, {**options}).listed("val")  # tells what is wrong before weights are read
                options["charset"] = stored_characters(read(cfg["adapter"]["base"]))
        if isinstance(cfg["model"], dict):  # a network that is trained
            with torch.device("meta"):
                network_options = _options(cfg)
                network = CTCRecognizer("", network_options.pop("name"), **network_options)
            if options["step"] % network.stride != 0:
                raise UserError(
                    f"data.step={options['step']} must be a multiple of {network.stride}, the encoder's stride",
                    "data.step",
                )
            options["pixels_per_step"] = network.stride / network.steps
        return make_data(LinesDataModule, options)

    def build_module(self, cfg: dict[str, Any], data: LinesDataModule) -> Recognizer:
        """The recogniser of `cfg` for the charset of `data`. Raises ValueError for arguments that it refuses."""
        optimizer = dict(cfg["optimizer"])
        base = None if cfg.get("adapter") is None else read(cfg["adapter"]["base"])
        return Recognizer(
            model=_options(cfg),
            characters=data.charset.characters,
            calibration=None if base is None else list(stored_calibration(base)),
            schedule=optimizer.pop("schedule"),
            optimizer=optimizer,
        )

    def export(self, recognizer: Recognizer, data: LinesDataModule, folder: Path) -> str:
        """Writes the weights into `folder`, for gcsa transcribe; returns it."""
        return str(recognizer.model.save_pretrained(folder, {"data": data.script or data.name}))

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """CER and WER of `config["model"]` on the lines of a split, or on "all" of them, upright and rotated, and of each document; see `measure`."""
        check_config(config, (*SPLITS, "all"), options=("adapter",))
        data = self.build_data({**config, "adapter": None})
        splits = SPLITS if config["split"] == "all" else (config["split"],)
        lines = evenly_spread(data.listed(*splits), config["limit"])
        predictor: Any = load(config["model"], config["adapter"], "recognition").to(chosen_device(config))
        rates = measure(predictor, lines, data.batch_size)
        documents = rates.pop("documents")
        each = {f"CER, {name}, {row['lines']} lines": row["cer"] for name, row in documents.items()}
        show(config, f"{len(lines)} lines", rates | (each if len(each) > 1 else {}), NAMES)
        return content(config, lines=len(lines), results=rates, documents=documents)

    def count_flops(self, recognizer: Recognizer, data: LinesDataModule) -> int:
        """FLOPs of a line of `COUNTED_WIDTH` pixels."""
        return count_flops(recognizer.model, torch.zeros(1, data.height, COUNTED_WIDTH))

    def measure(
        self, recognizer: Recognizer, data: LinesDataModule, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """How the test lines are read, upright and rotated, and lines for the screen."""
        found = measure(RecognitionPredictor(recognizer.model), data.listed("test"), data.batch_size)
        rates = {f"test/{name}": value for name, value in found.items() if name != "documents"}
        same = f"{rates['test/same_when_rotated']:.4f} of the lines"
        lines = {"test CER": f"{rates['test/cer']:.4f}", "test WER": f"{rates['test/wer']:.4f}"}
        return rates, lines | {"same text at 0, 90, 180 and 270 degrees": same}


def _options(cfg: dict[str, Any]) -> dict[str, Any]:
    """The argument `model` of `Recognizer` in `cfg`. Where it does not say, the LSTM is that of the adapter's base."""
    model = {key: value for key, value in model_options(cfg).items() if value is not None and key != "img_size"}
    if cfg.get("adapter") is not None and "recurrent" not in model:
        model["recurrent"] = read(cfg["adapter"]["base"]).options.get("recurrent", 0)
    return {"height": cfg["data"]["height"], **model}
