"""Which data a run is trained on: what a checkpoint keeps of them, and how they differ when it is resumed."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

MOST_BYTES = 2**30
"""Of the contents of a split: of a larger one, evenly spaced examples are read."""


def checksum(names: Iterable[str], parts: Iterable[Any]) -> str:
    """What changes with the names of the files of a split, and with the arrays or tensors `parts`."""
    of_names = of_parts = 0
    for name in names:
        of_names = zlib.crc32(name.encode(errors="surrogateescape") + b"\0", of_names)
    for part in parts:
        array = np.ascontiguousarray(part)
        of_parts = zlib.crc32(f"{array.dtype}{array.shape}".encode(), of_parts)
        of_parts = zlib.crc32(array.tobytes(), of_parts)
    return f"{of_names:08x} {of_parts:08x}"


def spaced(count: int, bytes_each: int) -> range:
    """The numbers of the examples that are read of `count`."""
    return range(0, count, max(1, -(-count * bytes_each // MOST_BYTES)))


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In what data differ from those of an earlier run, in words; nothing where they are the same."""
    if before.get("names") != now.get("names"):
        return f"names {_listed(now.get('names'))} (they were {_listed(before.get('names'))})"
    for split in ("train", "val"):
        (count, mark), (count_before, mark_before) = now[split], before[split]
        if count != count_before:
            return f"{count} examples in the {split} split (there were {count_before})"
        if mark != mark_before:
            what = "files" if mark.split()[0] != mark_before.split()[0] else "contents"
            return f"other {what} in the {split} split"
    return ""


def _listed(names: Any, most: int = 10) -> str:
    shown = ", ".join(map(str, list(names or [])[:most]))
    return shown + (", ..." if len(names or []) > most else "") or "none"
