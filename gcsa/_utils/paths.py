"""Paths that users and files name: the home folder, files confined to a folder, and bounded reads."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path, PureWindowsPath

from gcsa._utils.errors import UserError


def expanded(path: object) -> Path:
    """`path`, its leading ~ replaced by the home folder; a folder called 2024 may come as a number.

    Raises ValueError where there is no home folder, as in many containers, and for what cannot be a path.
    """
    if not isinstance(path, str | os.PathLike | int) or isinstance(path, bool) or "\0" in str(path):
        raise UserError(f"{path!r} is not a path", "path")
    try:
        return Path(str(path)).expanduser()
    except RuntimeError as error:
        raise UserError(
            f"{path} starts with ~, and no home folder is known: write the whole path", "path.home"
        ) from error


def composed(name: str) -> str:
    """`name` in NFC, in which names are compared: macOS writes é as two letters, others as one."""
    return unicodedata.normalize("NFC", name)


def existing(folder: Path, name: str) -> Path | None:
    """The file `name` in `folder`, in any normal form of Unicode; None where there is none."""
    return next((file for form in _forms(name) if (file := folder / form).is_file()), None)


def _forms(name: str) -> tuple[str, ...]:
    return name, composed(name), unicodedata.normalize("NFD", name)


def confined(folder: Path, name: str) -> Path | None:
    """The file `name` in `folder` or below it, or None where there is none or it lies elsewhere, also through a link.

    `name` comes from a file that somebody else may have written, so nothing outside is touched to find out, and where
    it is absolute, on any system, or holds a "..", the answer is None. Backslashes part folders too.
    """
    windows = PureWindowsPath(name)
    if windows.root or Path(name).anchor or "\0" in name:
        return None
    for parts in (kind(form).parts for form in _forms(name) for kind in (Path, PureWindowsPath)):
        if not parts or ".." in parts:
            continue
        try:
            path = folder.joinpath(*parts)
            if path.resolve().is_relative_to(folder.resolve()) and path.is_file():
                return path
        except (OSError, ValueError, RuntimeError):  # names that are too long or cannot be encoded, links in a circle
            continue
    return None


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a regular file. Raises ValueError above `most` of them, and for pipes and devices."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file", "file.not_regular")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UserError(f"{path} is larger than {most:,} bytes", "file.too_large")
    return data
