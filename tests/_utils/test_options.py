"""Options declared once: what is refused, in which words, and what documentation is derived."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from gcsa._utils.options import Count, Options, Range, Rate, Word, check_options, explain
from tests.errors import raises


@dataclass(frozen=True, kw_only=True)
class Base(Options):
    depth: Annotated[Count, "blocks"] = 4
    drop_rate: Annotated[Rate, "dropout"] = 0.0


@dataclass(frozen=True, kw_only=True)
class Sizes(Base):
    radius: Annotated[Annotated[int, Range(0, 9)] | Literal["all"] | None, "positions"] = None
    widths: Annotated[Sequence[Count], "of the stages"] = (1, 2)
    shape: Annotated[Literal["square", "disc"], "of a neighbourhood"] = "square"
    separable: Annotated[bool, "depthwise, then 1 x 1"] = False
    encoder: Annotated[Word, "another model"] = ""


@dataclass(frozen=True, kw_only=True)
class Other(Options):
    depth: Annotated[Sequence[Count], "blocks of each stage"] = (1,)


GOOD: list[dict[str, Any]] = [
    dict(radius=0),
    dict(radius="all"),
    dict(widths=[3]),
    dict(drop_rate=0),
    dict(encoder="a_1"),
]


@pytest.mark.parametrize("options", GOOD)
def test_good_values(options: dict[str, Any]) -> None:
    Sizes(**options)
    assert check_options({**options, "shape": None}, Sizes) == options


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("depth", 0, "a whole number from 1 to 256"),
        ("depth", True, "a whole number"),
        ("depth", "3", "a whole number"),
        ("depth", 2.0, "a whole number"),
        ("drop_rate", 1, "below 1"),
        ("drop_rate", float("nan"), "below 1"),
        ("radius", 10, "a whole number from 0 to 9 or all"),
        ("radius", "some", "or all"),
        ("widths", [], "a list of up to 8, each a whole number from 1 to 256"),
        ("widths", [1] * 9, "a list"),
        ("widths", "12", "a list"),
        ("widths", [1, True], "a list"),
        ("shape", "star", "one of square, disc"),
        ("separable", 1, "true or false"),
        ("encoder", "../x", "a-z"),
    ],
)
def test_bad_values_are_named(option: str, value: Any, words: str) -> None:
    for check in (lambda: Sizes(**{option: value}), lambda: check_options({option: value}, Sizes)):
        with raises(option, value=value) as error:
            check()
        assert words in str(error.value)


def test_unknown_options() -> None:
    with raises("option.unknown", option="dpeth"):
        check_options({"dpeth": 1}, Sizes, owner="gcsa_tiny")
    with pytest.raises(TypeError, match="'dpeth'"):
        Sizes(dpeth=1)


def test_an_option_of_several_kinds() -> None:
    for value in (3, [3]):
        assert check_options({"depth": value}, Sizes, Other) == {"depth": value}
    with raises("depth", value="x"):
        check_options({"depth": "x"}, Sizes, Other)


def test_documentation() -> None:
    rows = explain(Sizes)
    assert list(rows)[:2] == ["depth", "drop_rate"]
    assert (rows["depth"].values, rows["depth"].default, rows["depth"].meaning) == (
        "a whole number from 1 to 256",
        4,
        "blocks",
    )
