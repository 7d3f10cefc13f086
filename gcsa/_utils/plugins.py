"""Parts that others bring: modules that a configuration names, and packages with an entry point of the group `gcsa.plugins`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from gcsa._utils.errors import UserError, one_line

GROUP = "gcsa.plugins"


@cache
def load_plugins() -> None:
    """Imports what installed packages offer in the group `gcsa.plugins`, once. Raises UserError, naming the package, for one
    that fails."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else entry.value
            raise UserError(f"the plug-in {entry.name} of {package} {_failure(error)}", "plugins") from error


def import_parts(modules: Sequence[str]) -> None:
    """Imports the plug-ins, then the modules of these dotted names, which register tasks, data, losses and models.

    They are looked for in the current folder too. Raises UserError for one that fails.
    """
    load_plugins()
    if modules and os.getcwd() not in sys.path:  # the command `gcsa` has its own folder there
        sys.path.append(os.getcwd())
    for module in modules:
        try:
            import_module(module)
        except Exception as error:
            raise UserError(f"imports={module} {_failure(error)}", "imports", module=module) from error


def _failure(error: Exception) -> str:
    """What happened at an import, of which anything may come."""
    what = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
    return f"cannot be imported: {what}{one_line(error)}"
