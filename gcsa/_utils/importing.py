"""Packages that not everybody has, or wants to wait for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from gcsa._utils.errors import MissingExtraError


class _Waiting:
    """Finds the package `name` as all other finders do, and calls `then` once it was imported."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name != self.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_go_on(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.then()

            spec.loader.exec_module = execute_and_go_on  # type: ignore[method-assign]
        return spec


def check_peft() -> None:
    """Raises MissingExtraError without PEFT."""
    if find_spec("peft") is None:
        raise MissingExtraError(
            "an adapter needs PEFT, which is not installed: pip install gcsa-vit[lora]", "peft.missing"
        )


def after_import(name: str, then: Callable[[], object]) -> None:
    """Calls `then` behind the import of the package `name`: at once where it was imported already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Waiting(name, then))
