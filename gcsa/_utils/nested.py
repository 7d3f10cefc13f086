"""Nested mappings as flat ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(nested: Mapping[Any, Any], separator: str = ".") -> dict[str, Any]:
    """The values of nested mappings, each under its keys joined by `separator`; empty mappings vanish."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}{separator}{inner}": leaf for inner, leaf in flatten(value, separator).items()}
        else:
            flat[str(key)] = value
    return flat
