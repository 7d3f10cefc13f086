"""Checks of arguments, for everything that is built from numbers that a person or a file gives: each raises ValueError
in one sentence, before any work."""

from typing import Any

from gcsa._utils import validation
from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float, check_int, check_ints


def check_whole(least: int = 1, **values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is no whole number or is below `least`."""
    for name, value in values.items():
        check_int(name, value, least)


def check_rate(**values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is no probability below 1."""
    for name, value in values.items():
        validation.check_rate(name, value)


def check_heads(fields: int, heads: int, name: str = "fields") -> None:
    """Raises ValueError, naming the choices, unless `heads` divides `fields`."""
    check_whole(**{name: fields})
    check_int("heads", heads)
    if fields % heads != 0:
        divisors = [n for n in range(1, fields + 1) if fields % n == 0]
        raise UserError(f"heads={heads} does not divide {name}={fields}: choose one of {divisors}")


def check_positive(or_zero: bool = False, **values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is no finite number above 0 (or, `or_zero`, 0)."""
    for name, value in values.items():
        check_float(name, value, 0) if or_zero else check_float(name, value, above=0)


def check_sequence(**values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is not one or more whole numbers from 1 on."""
    for name, value in values.items():
        check_ints(name, value)
