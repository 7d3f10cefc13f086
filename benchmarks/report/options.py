"""The table of the options of gcsa's models, from their declarations."""

from __future__ import annotations

from gcsa._utils.options import explain
from gcsa._utils.validation import shown
from gcsa.models.create import options_of

from .results import table

FAMILIES = ["gcsa", "gcsa_pyramid", "gcnn", "gsa"]


def model_options() -> str:
    """Each option, its values, the default of its family, its meaning and the families that take it."""
    families: dict[tuple[str, str, str, str], list[str]] = {}
    for name in FAMILIES:
        for key, option in explain(options_of(f"{name}_tiny")).items():
            row = (f"`{key}`", option.values, f"`{shown(option.default)}`", option.meaning)
            families.setdefault(row, []).append(name)
    rows = [[*row, "all" if names == FAMILIES else ", ".join(names)] for row, names in families.items()]
    return table(["option", "values", "default", "meaning", "families"], rows)
