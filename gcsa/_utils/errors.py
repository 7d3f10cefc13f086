"""Errors that a user can mend, and messages on one line."""

from __future__ import annotations


class UserError(ValueError):
    """A value, file or configuration that cannot work: one sentence that names it and what would work.

    The commands print it on one line and exit with status 2.
    """


class MissingExtraError(UserError, ImportError):
    """A package that an extra of this distribution brings is not installed."""


def one_line(error: BaseException | str, limit: int | None = 200) -> str:
    """The message of an error on one line, at most `limit` characters of it; its type where it has none."""
    return " ".join(str(error).split())[:limit] or type(error).__name__
