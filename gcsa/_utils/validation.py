"""Checks of values that a user gives: each raises UserError in one sentence that names the key, the value and what would work."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

from gcsa._utils.errors import UserError

MAX_BATCH = 1_000_000
MAX_WORKERS = 512
MAX_SEED = 2**32 - 1
"""The largest seed that Lightning's `seed_everything` takes."""
MAX_SIDE = 4096
"""Pixels a side that images can be resized to."""


def is_int(value: object, low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether `value` is an integer, and no bool, from `low` to `high`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and low <= int(value) <= high


def is_number(value: object, low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether `value` is a finite number, and no bool, from `low` to `high`."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value) and low <= float(value) <= high
    except OverflowError:  # a whole number beyond those of float
        return False


def check_int(key: str, value: object, low: int = 1, high: int | None = None) -> None:
    """Raises UserError unless `value` is an integer from `low` to `high`."""
    if not is_int(value, low, math.inf if high is None else high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise UserError(f"{key}={shown(value)} must be a whole number {bounds}", key, value=value)


def check_float(
    key: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: float = -math.inf,
    below: float = math.inf,
) -> None:
    """Raises UserError unless `value` is a finite number with low <= value <= high and above < value < below."""
    if not is_number(value, low, high) or not above < float(value) < below:  # type: ignore[arg-type]
        bounds = {"of at least": low, "above": above, "at most": high, "below": below}
        named = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        raise UserError(f"{key}={shown(value)} must be a finite number {named}".rstrip(), key, value=value)


def check_rate(key: str, value: object) -> None:
    """Raises UserError unless `value` is a probability below 1, such as that of dropout."""
    check_float(key, value, 0, below=1)


def check_bool(key: str, value: object) -> None:
    """Raises UserError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise UserError(f"{key}={shown(value)} must be true or false", key, value=value)


def check_choice(key: str, value: object, choices: Collection[object]) -> None:
    """Raises UserError unless `value` is one of `choices`."""
    if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        raise UserError(f"{key}={shown(value)} must be one of {listed(choices)}", key, value=value)


def check_ints(key: str, values: object, low: int = 1) -> None:
    """Raises UserError unless `values` is a sequence of one or more integers of at least `low`."""
    entries = values if isinstance(values, Sequence) and not isinstance(values, str) else ()
    if not entries or not all(is_int(entry, low) for entry in entries):
        raise UserError(f"{key}={shown(values)} must be one or more whole numbers of at least {low}", key, value=values)


def check_divisor(key: str, value: object, name: str, size: int) -> None:
    """Raises UserError, with the choices, unless `value` is an integer that divides `size`, the value of `name`."""
    check_int(name, size)
    if not is_int(value, 1, size) or size % value != 0:  # type: ignore[operator]
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        raise UserError(
            f"{key}={shown(value)} does not divide {name}={size}: choose one of {divisors}", key, value=value
        )


def check_loading(*, batch_size: object, num_workers: object, seed: object, limit_train: object) -> None:
    """Raises UserError for what no data module can work with."""
    check_int("batch_size", batch_size, 1, MAX_BATCH)
    check_int("num_workers", num_workers, 0, MAX_WORKERS)
    check_int("seed", seed, 0, MAX_SEED)
    top = 1 if isinstance(limit_train, float) else math.inf
    if limit_train is not None and not (is_number(limit_train, 0, top) and limit_train):
        raise UserError(
            f"limit_train={shown(limit_train)} must be a fraction in (0, 1] or a count of at least 1",
            "limit_train",
            value=limit_train,
        )


def known_options(kinds: Sequence[type], config: object) -> list[dict[str, Any]]:
    """The options in the mapping `config`, split among the dataclasses `kinds`, such as those of an augmentation.

    Raises UserError where `config` is no mapping, and for an unknown key.
    """
    of_each = [[field.name for field in fields(kind)] for kind in kinds]
    known = [name for names in of_each for name in names]
    if not isinstance(config, Mapping):
        raise UserError(
            f"augment={shown(config)} must be null or options by name: {', '.join(known)}", "augment", value=config
        )
    if unknown := sorted(str(key) for key in config if key not in known):
        raise UserError(
            f"unknown augment option {unknown[0]!r}: use {', '.join(known)}",
            "augment.unknown_option",
            option=unknown[0],
        )
    return [{name: config[name] for name in names if name in config} for names in of_each]


def listed(choices: Iterable[object]) -> str:
    """The choices as a user types them, separated by commas."""
    return ", ".join(shown(choice) for choice in choices)


def shown(value: object, limit: int = 80) -> str:
    """`value` as a user types it on the command line, at most `limit` characters of it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
