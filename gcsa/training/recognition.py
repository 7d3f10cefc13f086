"""What a run needs to know about text lines and characters."""

from pathlib import Path
from typing import Any

import torch

from gcsa.evaluation import count_flops
from gcsa.ocr.datamodule import LinesDataModule
from gcsa.ocr.measure import measure as measure_reading
from gcsa.training.adapt import check_adapter, read_base
from gcsa.training.recognizer import Recognizer

MODULE = Recognizer
MONITORED = ("val/cer", "val/wer", "val/loss")
COUNTED_WIDTH = 480
"""Pixels of the line whose FLOPs are counted: about the median of a printed line 40 pixels high."""


def build_data(cfg: dict[str, Any]) -> LinesDataModule:
    """The data module of `cfg["data"]`, with the charset of the adapter's base to continue where there is one.

    Raises ValueError for options that it refuses, and whatever `read_base` does.
    """
    if cfg["monitor"]["metric"] not in MONITORED:
        raise ValueError(
            f"monitor.metric={cfg['monitor']['metric']} is of classes: choose {', '.join(MONITORED)} for data=lines"
        )
    options = {key: value for key, value in cfg["data"].items() if key != "name"}
    if cfg.get("adapter") is not None and options["charset"] is None:
        check_adapter(cfg["adapter"])
        options["charset"] = read_base(cfg["adapter"]["base"]).characters
    try:
        return LinesDataModule(seed=cfg["seed"], **options)
    except TypeError as error:
        raise ValueError(f"data=lines does not take these options: {error}") from error


def build_module(cfg: dict[str, Any], data: LinesDataModule) -> Recognizer:
    """The recogniser of `cfg` for the charset of `data`. Raises ValueError for arguments that it refuses."""
    model = {key: value for key, value in cfg["model"].items() if value is not None and key != "img_size"}
    optimizer = dict(cfg["optimizer"])
    module = Recognizer(
        model={"encoder": model.pop("name"), "height": data.height, **model},
        characters=data.charset.characters,
        schedule=optimizer.pop("schedule"),
        optimizer=optimizer,
    )
    if data.step % module.model.stride != 0:
        raise ValueError(f"data.step={data.step} must be a multiple of {module.model.stride}, the encoder's stride")
    return module


def export(recognizer: Recognizer, data: LinesDataModule, folder: Path) -> str:
    """Writes the weights into `folder`, for `CTCRecognizer.from_pretrained` and transcribe.py; returns it."""
    return str(recognizer.model.save_pretrained(folder))


def count(recognizer: Recognizer, data: LinesDataModule) -> int:
    """FLOPs of a line of `COUNTED_WIDTH` pixels."""
    return count_flops(recognizer.model, torch.zeros(1, data.height, COUNTED_WIDTH))


def measure(
    recognizer: Recognizer, data: LinesDataModule, scores: dict[str, float], output_dir: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """How the test lines are read, upright and turned, and lines for the screen."""
    found = {f"test/{name}": value for name, value in measure_reading(recognizer.model, data.test_dataloader()).items()}
    lines = {"test CER": f"{found['test/cer']:.4f}", "test WER": f"{found['test/wer']:.4f}"}
    if "test/same_when_turned" in found:
        lines["read the same at any quarter turn"] = f"{found['test/same_when_turned']:.4f} of the lines"
    return found, lines
