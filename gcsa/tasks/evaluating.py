"""What the evaluations of all tasks share: the check of conf/evaluate.yaml, a share of the examples, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int

STAGES = ("val", "test")

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


def check_config(config: dict[str, Any]) -> None:
    """Raises ValueError, naming the key, for a value that cannot work."""
    if config["model"] == "???":
        raise UserError(
            "no model given: set model= to a .ckpt, local-dir:FOLDER, the name of published weights or one in timm"
        )
    if config["split"] not in STAGES:
        raise UserError(f"unknown split {config['split']!r}: choose one of {', '.join(STAGES)}")
    for key, least in (("limit", 1), ("curve_images", 1), ("copies", 1), ("threads", 1), ("seed", 0)):
        value = config[key]
        if value is None and key in ("limit", "threads"):
            continue
        check_int(key, value, least)
    if config["device"] not in ("auto", "cpu", "cuda"):
        raise UserError(f"unknown device {config['device']!r}: choose auto, cpu or cuda")
    if config["device"] == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda, but torch sees no GPU on this machine: use device=cpu")


def check_evaluation(config: dict[str, Any], splits: Sequence[str]) -> None:
    if config["split"] not in splits:
        raise UserError(
            f"split={config['split']} is not for data={config['data']['name']}: choose one of {', '.join(splits)}"
        )
    for key, default in OF_CLASSIFIERS.items():
        if config[key] != default:
            raise UserError(f"{key} is for images with classes: leave it out with data={config['data']['name']}")
    check_config(config | {"split": "test"})
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])


def chosen_device(config: dict[str, Any]) -> str:
    return "cuda" if config["device"] == "cuda" or (config["device"] == "auto" and torch.cuda.is_available()) else "cpu"


def evenly_spread(things: list[T], limit: int | None) -> list[T]:
    """So many of them, evenly spread."""
    count = len(things) if limit is None else min(limit, len(things))
    return [things[i * len(things) // count] for i in range(count)]


def content(config: dict[str, Any], **found: Any) -> dict[str, Any]:
    about = {"model": str(config["model"]), "adapter": config["adapter"], "trained": True}
    return about | {"data": config["data"]["name"], "split": config["split"]} | found


def show(config: dict[str, Any], read: str, results: dict[str, Any]) -> None:
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
