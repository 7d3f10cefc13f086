"""Weights as a folder for the Hugging Face hub: tensors, timm's config.json, and a card."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from gcsa._utils.atomic import check_writable
from gcsa._utils.errors import UserError
from gcsa._utils.published import ADAPTER_CONFIG, published
from gcsa.tasks import make_predictor
from gcsa.weights import (
    Weights,
    read,
    save_classifier,
    save_recognizer,
    save_segmenter,
)

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


def write_hub(source: str, folder: str | Path) -> Path:
    """Writes the trained weights in `source` (see `gcsa.weights.read`) into `folder`, which appears whole or not at all.

    A classifier's opens by timm's `local-dir:` and `hf-hub:`; all folders open by `gcsa.load`. A card that stands in `source` comes along with its pictures; of others it tells
    what their config.json does. Raises ValueError for a folder that is there already, for an adapter, and for a classifier
    that does not tell how its images are normalised; and what `read` and `check_writable` raise.
    """
    folder = Path(folder)
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} is there already: name a folder that is not, or remove it first")
    check_writable(folder)
    given = published(source) or Path(source.removeprefix("local-dir:"))
    if (given / ADAPTER_CONFIG).is_file():
        raise UserError(f"{source} is an adapter, which the hub takes as PEFT wrote it: name whole weights")
    weights = read(source)
    model = make_predictor(weights).network
    card = (given / CARD).read_text(encoding="utf-8") if (given / CARD).is_file() else None
    terms = LICENSE.search(card) if card is not None else None
    terms_of_use = terms[1] if terms is not None else weights.about.get("license")
    with tempfile.TemporaryDirectory(prefix=".gcsa-", dir=folder.resolve().parent) as beside:
        fresh = _save(model, weights, Path(beside) / folder.name, terms_of_use)
        (fresh / CARD).write_text(_card(weights, folder.name, card, terms_of_use), encoding="utf-8")
        for picture in sorted(given.glob("*.png")) if card is not None else ():
            shutil.copyfile(picture, fresh / picture.name)
        again = read(fresh)
        if again.task != weights.task or not _same(make_predictor(again).network.state_dict(), model.state_dict()):
            raise UserError(f"{folder} was not written: read back, it is not {source}")
        os.replace(fresh, folder)
    return folder


def _save(model: Any, weights: Weights, folder: Path, terms: Any) -> Path:
    if weights.task == "segmentation":
        return save_segmenter(model, folder, weights.about)
    if weights.task == "recognition":
        return save_recognizer(model, folder, weights.about)
    # What the model's class says there is the licence of the code, not of what somebody trained.
    vars(model)["pretrained_cfg"] = {**model.pretrained_cfg, "license": terms if isinstance(terms, str) else None}
    return save_classifier(model, folder, weights.about, **weights.preprocessing)


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
    rows = [f"| {_cell(key)} | {_cell(value)} |" for key, value in _flat(weights.about.get("results"))]
    if rows:
        lines.append("\n".join(["## Results", "", "| measure | value |", "| --- | --- |", *rows]))
    return "\n\n".join(lines)


def _flat(results: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in results.items() if isinstance(results, dict) else ():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", "\\|")[:200]
