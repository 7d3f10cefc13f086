"""Images that two splits share: what was trained on is no test."""

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from gcsa._utils.errors import UserError

log = logging.getLogger(__name__)
LEAKS = ("warn", "refuse")
"""What is done about such images."""


def tell_leaks(files: Mapping[str, Sequence[Path]], leaks: str) -> None:
    """Logs how many images two splits share, and the first of them, or with "refuse" raises UserError: files of the same bytes, under
    any name. A file that is missing is left to whoever reads it."""
    there = {part: [path for path in paths if path.is_file()] for part, paths in files.items()}
    sizes = Counter(path.stat().st_size for paths in there.values() for path in paths)
    seen: dict[bytes, tuple[str, Path]] = {}
    shared: dict[tuple[str, str], list[tuple[Path, Path]]] = {}
    for part, paths in there.items():
        for path in paths:
            if sizes[path.stat().st_size] < 2:
                continue
            first, other = seen.setdefault(hashlib.sha256(path.read_bytes()).digest(), (part, path))
            if first != part:
                shared.setdefault((first, part), []).append((other, path))
    for (first, part), pairs in shared.items():
        message = (
            f"{len(pairs)} images of {part} are in {first}, too (the first: {pairs[0][1]} is {pairs[0][0]}): results on them say "
            "little, so leave one of each out"
        )
        if leaks == "refuse":
            raise UserError(message, "split.leaks", count=len(pairs))
        log.warning("%s", message)
