"""Options declared once: a dataclass whose annotations say the type, the range and the meaning of each.

    @dataclass(frozen=True, kw_only=True)
    class Sizes(Options):
        depth: Annotated[Count, "blocks of attention"] = 4
        attention: Annotated[Literal["spatial", "linear"], "which tokens attend to which"] = "spatial"

`Sizes(depth=0)` raises UserError("depth=0 must be a whole number from 1 to 256"). `check_options(mapping, Sizes)` checks what
a file or a command says. `explain(Sizes)` gives the rows of a documentation table, which the comments of conf/ repeat.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from gcsa._utils.errors import UserError
from gcsa._utils.validation import is_int, is_number, shown

MOST_ENTRIES = 8
"""Of a list."""


@dataclass(frozen=True)
class Rule:
    """What values of a type must pass besides, and words that say so behind the type's own, such as "a number"."""

    passes: Callable[[Any], bool]
    words: str


def Range(least: float, most: float) -> Rule:
    """Numbers from `least` to `most`."""
    return Rule(lambda value: least <= value <= most, f"from {least} to {most}")


Count = Annotated[int, Range(1, 256)]
Width = Annotated[int, Range(1, 16384)]
Side = Annotated[int, Range(1, 8192)]
Rate = Annotated[float, Rule(lambda value: 0 <= value < 1, "of at least 0 and below 1")]
Word = Annotated[
    str, Rule(lambda value: re.fullmatch("[a-z0-9_]{0,32}", value) is not None, "of up to 32 of a-z, 0-9 and _")
]


def matches(value: Any, kind: Any) -> bool:
    """Whether `value` is of the type `kind`: int, float, bool, str, None, a Literal, a union, a sequence, a tuple, or one of
    these annotated with a `Rule`. No bool is a number."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return matches(value, args[0]) and all(rule.passes(value) for rule in args[1:] if isinstance(rule, Rule))
    if origin is Literal:
        return isinstance(value, str) and value in args
    if origin in (Union, UnionType):
        return any(matches(value, member) for member in args)
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == len(args) and all(map(matches, value, args))
    if origin is not None and issubclass(origin, Sequence):
        return (
            isinstance(value, list | tuple)
            and 1 <= len(value) <= MOST_ENTRIES
            and all(matches(entry, args[0]) for entry in value)
        )
    return {int: is_int, float: is_number}.get(kind, lambda value: isinstance(value, kind))(value)


def words(kind: Any) -> str:
    """What values of `kind` are, in words."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return " ".join([words(args[0]), *(rule.words for rule in args[1:] if isinstance(rule, Rule))])
    if origin is Literal:
        return args[0] if len(args) == 1 else f"one of {', '.join(arg or repr(arg) for arg in args)}"
    if origin in (Union, UnionType):
        return " or ".join(words(member) for member in args if member is not type(None))
    if origin is tuple:
        return f"a list of {len(args)}, each {words(args[0])}"
    if origin is not None and issubclass(origin, Sequence):
        return f"a list of up to {MOST_ENTRIES}, each {words(args[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}.get(
        kind, "options"
    )


class Explained(NamedTuple):
    """An option as users read of it."""

    kind: Any
    values: str
    default: Any
    meaning: str


def explain(options: type[Options]) -> dict[str, Explained]:
    """The type of each option, its values in words, its default and its meaning."""
    kinds = get_type_hints(options, include_extras=True)
    meanings = {name: next((x for x in get_args(kind)[1:] if isinstance(x, str)), "") for name, kind in kinds.items()}
    return {
        field.name: Explained(kinds[field.name], words(kinds[field.name]), field.default, meanings[field.name])
        for field in fields(options)
    }


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the dataclasses of options, whose values are checked when one is made.

    Raises TypeError for an unknown name and UserError, naming the option and what would work, for an impossible value.
    """

    def __post_init__(self) -> None:
        for name, option in explain(type(self)).items():
            check_value(name, getattr(self, name), option.kind)


def check_value(name: str, value: Any, *kinds: Any) -> None:
    """Raises UserError unless `value`, of the option `name`, is of one of the types `kinds`. Options within options are a mapping."""
    for kind in kinds:
        inner = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if isinstance(inner, type) and issubclass(inner, Options) and isinstance(value, Mapping):
            check_options(value, inner, owner=name)
            return
    if not any(matches(value, kind) for kind in kinds):
        choices = " or ".join(dict.fromkeys(words(kind) for kind in kinds))
        raise UserError(f"{name}={shown(value)} must be {choices}", name, value=value)


def check_options(
    options: Mapping[str, Any],
    *known: type[Options],
    owner: str = "a model",
    choices: Callable[[], Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The options that are not None, each of which one of the dataclasses `known` takes.

    Raises UserError for one that `owner` does not take, naming the nearest of `choices` (default: all), and for an impossible
    value.
    """
    kinds: dict[str, list[Any]] = {}
    for cls in known:
        for name, option in explain(cls).items():
            kinds.setdefault(name, []).append(option.kind)
    for key, value in options.items():
        if key not in kinds:
            names = list(kinds) if choices is None else choices()
            close = difflib.get_close_matches(str(key), names) or names
            raise UserError(
                f"unknown option {shown(key)} of {owner}: choose one of {', '.join(close)}",
                "option.unknown",
                option=key,
            )
        if value is not None:
            check_value(f"{owner}.{key}" if "." in owner else key, value, *kinds[key])
    return {key: value for key, value in options.items() if value is not None}
