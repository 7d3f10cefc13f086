"""What evaluate.py measures of recognisers of text lines and of segmenters; of classifiers, see `gcsa.evaluation.run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from gcsa.dense.data.datamodule import MasksDataModule
from gcsa.dense.losses import checked_as
from gcsa.dense.measure import measure_turned, scores_of
from gcsa.dense.segmenter import load_segmenter
from gcsa.dense.stars import check_installed
from gcsa.evaluation.run import check_config
from gcsa.ocr.data.batches import LineSet, WidthSampler
from gcsa.ocr.data.datamodule import LinesDataModule
from gcsa.ocr.data.line_image import fit_line, read_line
from gcsa.ocr.data.lines import SPLITS
from gcsa.ocr.load import load_recognizer
from gcsa.ocr.measure import measure
from gcsa.published import published

OF_CLASSIFIERS = {"curve_images": 1000, "cyclic": False, "copies": 1, "overlay": []}
"""Options that mean nothing elsewhere, and the values that conf/evaluate.yaml gives them."""

ROWS = {
    "cer": "CER, upright lines",
    "wer": "WER, upright lines",
    "cer_any": "CER, frame unknown",
    "turn_found": "frame found",
    "same_when_turned": "same text at 0, 90, 180 and 270 degrees",
    "cer_upside_down": "CER, lines upside down",
    **{f"ap{share}": f"average precision at IoU 0.{share // 10}" for share in range(50, 100, 10)},
    "ap50_by_image": "average precision at IoU 0.5, mean over pictures",
    "pq": "panoptic quality",
    "dice": "Dice of objects, or mean over classes",
    "iou": "IoU of objects, or mean over classes",
}
"""What the results are called on the screen."""

T = TypeVar("T")


def evaluate_lines(config: dict[str, Any], data: LinesDataModule) -> dict[str, Any]:
    """CER and WER of `config["model"]` on the lines of a split of `data`, or on "all" of them, upright and turned.

    Prints a table and returns JSON-ready values. Raises ValueError or FileNotFoundError for a configuration or a model that
    cannot work, before any line is read, and for lines that cannot be read.
    """
    _check(config, (*SPLITS, "all"))
    adapter = config["adapter"] and (published(config["adapter"]) or config["adapter"])
    model = load_recognizer(config["model"], adapter).to(_device(config))
    wanted = SPLITS if config["split"] == "all" else (config["split"],)
    lines = _spread(data.listed(*wanted), config["limit"])
    inks = (fit_line(read_line(line, model.height), model.height, model.stride, upright=True) for line in lines)
    read = LineSet([ink.mul(255).round_().to(torch.uint8) for ink in inks], lines, model.charset)
    batches = WidthSampler(read.widths, data.batch_size, shuffle=False, seed=0)
    rates = measure(model, (read[draw] for draw in batches))
    _show(config, f"{len(lines)} lines", rates)
    return _content(config, lines=len(lines), results=rates)


def evaluate_masks(config: dict[str, Any], data: MasksDataModule) -> dict[str, Any]:
    """Dice, IoU and the scores of instances of `config["model"]` on a held-out split of `data`, or on "all" of it, and what changes
    where its pictures are turned and mirrored. As `evaluate_lines`."""
    _check(config, ("val", "test", "all"))
    if config["adapter"] is not None:
        raise ValueError("a segmenter takes no adapter: leave out adapter=")
    model = load_segmenter(config["model"]).to(_device(config)).eval()
    if data.in_chans != model.in_chans:
        raise ValueError(
            f"{config['model']} takes pictures of {model.in_chans} channels: set data.in_chans={model.in_chans}"
        )
    if model.task == "instances":
        check_installed()
    data.percentiles = model.low, model.high  # as it was trained, whatever the data module would do
    data.check_labels = checked_as(model)
    wanted = SPLITS if config["split"] == "all" else (config["split"],)
    examples = [data.example(pair) for pair in _spread(data.listed(*wanted), config["limit"])]
    pictures = [(torch.from_numpy(example.normalized()), example.labels) for example in examples]
    metrics: list[Any] = scores_of(model)
    with torch.inference_mode():
        for image, labels in pictures:
            found = model.labels(model.maps(image))
            for metric in metrics:
                metric.update(found, labels)
    results = {name: float(value) for metric in metrics for name, value in metric.compute().items()}
    turned = measure_turned(model, pictures)
    shown = {f"{name} that turns and mirrors change": turned[name] for name in ("pixels", "objects") if name in turned}
    _show(config, f"{len(pictures)} pictures", results | shown)
    return _content(config, pictures=len(pictures), results=results, turned=turned)


def _check(config: dict[str, Any], splits: Sequence[str]) -> None:
    if config["split"] not in splits:
        raise ValueError(
            f"split={config['split']} is not for data={config['data']['name']}: choose one of {', '.join(splits)}"
        )
    for key, default in OF_CLASSIFIERS.items():
        if config[key] != default:
            raise ValueError(f"{key} is for images with classes: leave it out with data={config['data']['name']}")
    check_config(config | {"split": "test"})
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])


def _device(config: dict[str, Any]) -> str:
    return "cuda" if config["device"] == "cuda" or (config["device"] == "auto" and torch.cuda.is_available()) else "cpu"


def _spread(things: list[T], limit: int | None) -> list[T]:
    """So many of them, evenly spread."""
    count = len(things) if limit is None else min(limit, len(things))
    return [things[i * len(things) // count] for i in range(count)]


def _content(config: dict[str, Any], **found: Any) -> dict[str, Any]:
    about = {"model": str(config["model"]), "adapter": config["adapter"], "trained": True}
    return about | {"data": config["data"]["name"], "split": config["split"]} | found


def _show(config: dict[str, Any], read: str, results: dict[str, Any]) -> None:
    screen = Table(title=f"{config['label'] or Path(str(config['model'])).name}, {config['split']} split, {read}")
    screen.add_column("what", no_wrap=True)
    screen.add_column("value", justify="right", no_wrap=True)
    for name, value in results.items():
        if name.endswith("_interval"):
            continue
        shown = f"{value:.2%}" if isinstance(value, float) else f"{value:,}"
        if interval := results.get(f"{name}_interval"):
            shown += " [{:.2%}, {:.2%}]".format(*interval)
        screen.add_row(ROWS.get(name, name), shown)
    Console().print(screen)
