"""Errors that a user can mend, and messages on one line."""

from __future__ import annotations


class UserError(ValueError):
    """A value, file or configuration that cannot work: one sentence that names it and what would work.

    The commands print it on one line and exit with status 2.
    """


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
