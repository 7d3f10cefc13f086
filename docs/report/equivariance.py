"""Tables of equivariance errors."""

from __future__ import annotations

import json
import re
from typing import Any

from report.results import ROOT, measured, table

INTEGRATIONS = ROOT / "docs/results/integrations"


def size_of(name: str) -> str:
    """A registered name without its group: "gcsa_tiny" of "gcsa_tiny_c8"."""
    return re.sub(r"_[cd]\d+$", "", name)


def invariance() -> str:
    """The largest error of each size over its registered groups."""
    sizes: dict[str, list[dict[str, Any]]] = {}
    for name, row in measured("invariance").items():
        sizes.setdefault(size_of(name), []).append(row)
    rows = []
    for size, groups in sizes.items():
        at_45_degrees = [f"{row['at_45_degrees']:.2f}" for row in groups if "at_45_degrees" in row]
        errors = [f"{max(row[key] for row in groups):.1e}" for key in ("logits", "features")]
        rows.append([f"`{size}`", str(len(groups)), *errors, ", ".join(at_45_degrees)])
    header = ["model", "registered names", "logits", "features", "logits at 45 degrees, smooth images: c4, c8"]
    return table(header, rows)


def precision() -> str:
    """Invariance and rounding of class scores in half precision."""
    models = measured("precision")
    rows = []
    for way in next(iter(models.values())):
        rows.append([way, *(f"{row[way]['invariance']:.0e} ({row[way]['rounding']:.0e})" for row in models.values())])
    return table(["computed in", *(f"`{name}`" for name in models)], rows)


FRAMEWORKS = {
    "tiatoolbox": "TIAToolbox",
    "lightly_train": "lightly-train",
    "trident": "TRIDENT",
    "torchgeo": "TorchGeo",
    "smp": "segmentation_models_pytorch",
}


def _size(change: float) -> str:
    return f"{change:.2f}" if change > 0.01 else f"{change:.0e}"


def integrations() -> str:
    """The largest and the median change of a patch's features under quarter turns, through each framework."""
    rows = []
    for name, title in FRAMEWORKS.items():
        content = json.loads((INTEGRATIONS / f"{name}.json").read_text())
        for side, found in content.items():
            if isinstance(found, dict) and "largest" in found:
                numbers = f"{found['numbers']:,}"
                rows.append(
                    [title, content["version"], side, numbers, f"{_size(found['largest'])} ({_size(found['median'])})"]
                )
    return table(["framework", "version", "way", "numbers", "change"], rows)


def backbones() -> str:
    """How far features of ours and of timm's common backbones move, relative to their spread over patches."""
    rows = []
    for name, found in json.loads((INTEGRATIONS / "invariance.json").read_text())["models"].items():
        changes = [_size(found[key]) for key in ("turns", "mirrors")]
        rows.append([f"`{name}`", found["weights"], *changes, f"{100 * found['found']:.0f} %"])
    return table(["model", "weights", "quarter turns", "mirrors", "found"], rows)
