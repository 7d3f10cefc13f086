"""The parts of gcsa evaluate that all tasks share: checks of conf/evaluate.yaml, a part of the examples, and the table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_choice, check_int, shown

OPTIONAL: dict[str, Any] = {
    **{"adapter": None, "symmetry": None, "symmetry_group": None},
    **{"curve_images": 1000, "cyclic": False, "copies": 1, "overlay": []},
}
"""Options that only some tasks read, with their defaults in conf/evaluate.yaml."""

T = TypeVar("T")


def check_config(config: Mapping[str, Any], splits: Collection[str], options: Collection[str] = ()) -> None:
    """Checks the options of conf/evaluate.yaml, and sets the number of threads.

    Args:
        config: conf/evaluate.yaml as plain values.
        splits: what the task can measure on.
        options: the keys of `OPTIONAL` that the task reads; it checks their values itself.

    Raises:
        UserError: naming the key of a value that cannot work.
    """
    if config["model"] == "???":
        raise UserError(
            "no model given: set model= to a .ckpt, local-dir:FOLDER, the name of published weights or one in timm",
            "model.missing",
        )
    check_choice("split", config["split"], splits)
    for key, default in OPTIONAL.items():
        if key not in options and config[key] != default:
            raise UserError(
                f"{key}={shown(config[key])} does nothing with data={config['data']['name']}: leave it out",
                "config.no_effect",
            )
    for key, low in (("limit", 1), ("threads", 1), ("seed", 0)):
        if key == "seed" or config[key] is not None:
            check_int(key, config[key], low)
    check_choice("device", config["device"], ("auto", "cpu", "cuda"))
    if config["device"] == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda, but torch sees no GPU on this machine: use device=cpu", "device.no_gpu")
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])


def chosen_device(config: Mapping[str, Any]) -> str:
    """The device that `config["device"]` stands for."""
    return "cuda" if config["device"] != "cpu" and torch.cuda.is_available() else "cpu"


def evenly_spread(examples: list[T], limit: int | None) -> list[T]:
    """At most `limit` of the examples, evenly spread; all of them for None."""
    count = len(examples) if limit is None else min(limit, len(examples))
    return [examples[i * len(examples) // count] for i in range(count)]


def content(config: Mapping[str, Any], **results: Any) -> dict[str, Any]:
    """`results` with the model and the data that they are of, for evaluation.json."""
    about = {"model": str(config["model"]), "adapter": config["adapter"], "trained": True}
    return about | {"data": config["data"]["name"], "split": config["split"]} | results


def show(config: Mapping[str, Any], examples: str, results: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Prints `results` as a table, each under its name in `names`.

    examples: such as "50 lines". Fractions are shown in percent, with the interval `KEY_interval` where there is one.
    """
    screen = Table(title=f"{config['label'] or Path(str(config['model'])).name}, {config['split']} split, {examples}")
    screen.add_column("measure", no_wrap=True)
    screen.add_column("value", justify="right", no_wrap=True)
    for key, value in results.items():
        if key.endswith("_interval"):
            continue
        text = f"{value:.2%}" if isinstance(value, float) else f"{value:,}"
        if interval := results.get(f"{key}_interval"):
            text += " [{:.2%}, {:.2%}]".format(*interval)
        screen.add_row(names.get(key, key), text)
    Console().print(screen)
