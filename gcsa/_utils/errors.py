"""Errors that a user can mend, and messages on one line."""

from __future__ import annotations

from typing import Any


class UserError(ValueError):
    """A value, file or configuration that cannot work: one sentence that names it and what would work.

    The commands print it on one line and exit with status 2. `key` says in a short dotted name what is at fault, such as
    "data.views" or "weights.damaged", and stays when the sentence is reworded; `values` holds what was wrong, by name.
    """

    def __init__(self, message: str, key: str = "", /, **values: Any) -> None:
        super().__init__(message)  # pickle makes an error from this alone, and restores the attributes by itself
        self.key, self.values = key, values


def reworded(error: BaseException, message: str, key: str) -> UserError:
    """`error` in another sentence, with the key and the values that it has, or else with `key`."""
    if isinstance(error, UserError) and error.key:
        return UserError(message, error.key, **error.values)
    return UserError(message, key)


class Terminated(BaseException):
    """SIGTERM came: what is half written goes, as after Ctrl-C."""


class MissingExtraError(UserError, ImportError):
    """A package that an extra of this distribution brings is not installed."""


def one_line(error: BaseException | str, limit: int | None = 200) -> str:
    """The message of an error on one line, at most `limit` characters of it; its type where it has none."""
    return visible(" ".join(str(error).split()))[:limit] or type(error).__name__


def visible(text: str) -> str:
    """`text` with control characters as a terminal would not obey them: the name of a file may hold some."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode() for sign in text
    )
