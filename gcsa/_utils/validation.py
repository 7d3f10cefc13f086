"""Checks of what a user sets for data: one sentence that names the key, its value and what would work."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from gcsa._utils.errors import UserError

MAX_BATCH = 1_000_000
MAX_WORKERS = 512
MAX_SEED = 2**32 - 1
"""The largest that Lightning's `seed_everything` takes."""
MAX_SIDE = 4096
"""Pixels a side that images can be resized to."""


def check_whole(key: str, value: object, least: int, most: int) -> None:
    """Raise ValueError unless `value` is a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UserError(f"{key}={_shown(value)} must be a whole number from {least} to {most}")


def check_number(key: str, value: object, least: float, below: float = math.inf) -> None:
    """Raise ValueError unless `value` is a number of at least `least` that is below `below` (finite)."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value < below:
        upper = "" if below == math.inf else f" and below {below:g}"
        raise UserError(f"{key}={_shown(value)} must be a finite number of at least {least:g}{upper}")


def check_switch(key: str, value: object) -> None:
    """Raise ValueError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise UserError(f"{key}={_shown(value)} must be true or false")


def check_loading(*, batch_size: object, num_workers: object, seed: object, limit_train: object) -> None:
    """Raise ValueError for what no data module can work with."""
    check_whole("batch_size", batch_size, 1, MAX_BATCH)
    check_whole("num_workers", num_workers, 0, MAX_WORKERS)
    check_whole("seed", seed, 0, MAX_SEED)
    top = 1 if isinstance(limit_train, float) else math.inf
    number = isinstance(limit_train, int | float) and not isinstance(limit_train, bool)
    if limit_train is not None and not (number and 0 < limit_train <= top):  # type: ignore[operator]
        raise UserError(f"limit_train={_shown(limit_train)} must be a fraction in (0, 1] or a count of at least 1")


def known_options(kinds: Sequence[type], config: object) -> list[dict[str, Any]]:
    """The mapping `config` of arguments for dataclasses, those of an augmentation: each one's own.

    Raises ValueError where it is no mapping, and for an unknown key, with those that there are.
    """
    of_each = [[field.name for field in fields(kind)] for kind in kinds]
    known = [name for names in of_each for name in names]
    if not isinstance(config, Mapping):
        raise UserError(f"augment={_shown(config)} must be null or options by name: {', '.join(known)}")
    if unknown := sorted(str(key) for key in config if key not in known):
        raise UserError(f"unknown augment option {unknown[0]!r}: use {', '.join(known)}")
    return [{name: config[name] for name in names if name in config} for names in of_each]


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
