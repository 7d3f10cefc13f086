"""Weights as a folder for the Hugging Face hub: tensors, timm's config.json, and a card."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gcsa._utils.atomic import check_writable, replacing_folder
from gcsa._utils.errors import UserError, one_line
from gcsa._utils.nested import flatten
from gcsa._utils.published import ADAPTER_CONFIG, published
from gcsa.tasks import make_predictor
from gcsa.weights import (
    Weights,
    read,
    save_classifier,
    write,
)
from gcsa.weights.schema import CLASSIFICATION

CARD = "README.md"
PIPELINES = {
    "classification": "image-classification",
    "recognition": "image-to-text",
    "segmentation": "image-segmentation",
}
LOADING = 'import gcsa\n\npredictor = gcsa.load("hf-hub:OWNER/NAME")'
TIMM = 'import timm\n\nmodel = timm.create_model("hf-hub:OWNER/NAME", pretrained=True)'
FRONT = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
LICENSE = re.compile(r"^license: (\S+)$", re.MULTILINE)


def check_new(folder: Path) -> None:
    """Raises UserError for a folder that exists, and as `check_writable`."""
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} is there already: name a folder that is not, or remove it first", "hub.exists")
    check_writable(folder)


def write_hub(source: str, folder: str | Path) -> Path:
    """Writes the trained weights in `source` (see `gcsa.weights.read`) into a new `folder`, whole or not at all. Returns it.

    `gcsa.load` opens the folder; timm's `local-dir:` and `hf-hub:` open that of a classifier. The card and its pictures are
    copied from `source`; without a card there, one is written from config.json. Raises ValueError for a folder that exists,
    and for an adapter; and as `gcsa.load` and `check_writable`.
    """
    folder = Path(folder)
    check_new(folder)
    given = published(source) or Path(source.removeprefix("local-dir:"))
    if (given / ADAPTER_CONFIG).is_file():
        raise UserError(
            f"{source} is an adapter, which the hub takes as PEFT wrote it: name whole weights", "hub.adapter"
        )
    weights = read(source)
    network = make_predictor(weights).network
    card = (given / CARD).read_text(encoding="utf-8") if (given / CARD).is_file() else None
    terms = LICENSE.search(card) if card is not None else None
    terms_of_use = terms[1] if terms is not None else weights.about.get("license")
    with replacing_folder(folder) as fresh:
        if weights.task == CLASSIFICATION:
            # What the model's class says there is the licence of the code, not of what somebody trained.
            cfg = {**network.pretrained_cfg, "license": terms_of_use if isinstance(terms_of_use, str) else None}
            vars(network)["pretrained_cfg"] = cfg
            save_classifier(network, fresh, weights.about, **weights.preprocessing, **weights.entries)
        else:
            write(weights, fresh)
        (fresh / CARD).write_text(_card(weights, folder.name, card, terms_of_use), encoding="utf-8")
        for picture in sorted(given.glob("*.png")) if card is not None else ():
            shutil.copyfile(picture, fresh / picture.name)
        again = read(fresh)
        if again.task != weights.task or not _same(make_predictor(again).network.state_dict(), network.state_dict()):
            raise UserError(f"{folder} was not written: read back, it is not {source}", "hub.damaged")
    return folder


def _same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _card(weights: Weights, name: str, card: str | None, terms: Any) -> str:
    from huggingface_hub import ModelCardData

    front = ModelCardData(
        license=terms if isinstance(terms, str) else None,
        library_name="timm" if weights.task == "classification" else "gcsa",
        pipeline_tag=PIPELINES.get(weights.task),
        tags=["gcsa", "rotation-equivariance"],
    )
    body = FRONT.sub("", card) if card is not None else f"# {name}\n\n{_told(weights)}"
    loading = f"## From the hub\n\n```python\n{LOADING}\n```"
    if weights.task == "classification":
        loading += f"\n\nOr by timm:\n\n```python\n{TIMM}\n```"
    else:
        loading += "\n\ntimm does not open this folder: its whole model is not one of timm's."
    return f"---\n{front.to_yaml()}\n---\n\n{body.rstrip()}\n\n{loading}\n"


def _told(weights: Weights) -> str:
    """What the weights say of themselves, in Markdown."""
    lines = [f"`{weights.architecture}`, a network for {weights.task} of gcsa."]
    if "data" in weights.about:
        lines.append(f"Data: {_cell(weights.about['data'])}.")
    lines.append(
        f"Licence: {_cell(weights.about['license'])}." if "license" in weights.about else "No licence is stated."
    )
    results = weights.about.get("results")
    results = flatten(results, "/") if isinstance(results, dict) else {}
    rows = [f"| {_cell(key)} | {_cell(value)} |" for key, value in results.items()]
    if rows:
        lines.append("\n".join(["## Results", "", "| measure | value |", "| --- | --- |", *rows]))
    return "\n\n".join(lines)


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return one_line(text).replace("|", "\\|")
