"""Tables of equivariance errors."""

from __future__ import annotations

import re
from typing import Any

from report.results import measured, table


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
