"""Files and folders that appear whole or not at all, and only where a regular file may be."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gcsa._utils.errors import UserError

PREFIX = ".gcsa-"
"""Of folders in which files are until they are whole."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a disk that is full, a quota that is used up and a file above the size that is allowed."""
SHORT = re.compile(r"\[\n[-+.,\deE\s]+\]|^ +\{\n[^][{}]+\}", re.MULTILINE)
"""A list of numbers, and an object of a list that holds neither list nor object, as json.dumps lays them out, a line for each value."""


def check_writable(path: str | Path) -> Path:
    """The file that `path` names, with symbolic links followed, after a folder beside it was made and removed again.

    Raises ValueError for a folder, for anything else that is not a regular file (a device, a pipe, a socket) and for a
    folder that takes no files; FileNotFoundError where the folder is missing.
    """
    target = _target(path)
    _beside(target).cleanup()
    return target


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a path to write to; when the block ends, the file written there replaces `path`, whole.

    After an exception in the block, `path` is what it was and nothing is left beside it. The new file has the mode that
    the process gives every new file (its umask). Raises as `check_writable`, and OSError naming `path` where the disk is
    full.
    """
    target = _target(path)
    # A folder, because some formats write more than one file.
    with _beside(target) as folder:
        part = Path(folder) / target.name
        with _full_disk_named(path):
            yield part
        give_usual_mode(part)
        os.replace(part, target)


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Writes `content` to `path` at once: readers see the old file or the whole new one. Returns `path`.

    Raises as `replacing`.
    """
    with replacing(path) as part:
        part.write_bytes(json_bytes(content))
    return path


def json_bytes(content: dict[str, Any]) -> bytes:
    """`content` as JSON for people to read: each list of numbers, and each row of a table, on one line."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    text = SHORT.sub(lambda found: re.sub(r"\n *", "", re.sub(r",\n *", ", ", found[0])), text)
    return f"{text}\n".encode(errors="backslashreplace")  # names of files need not be UTF-8; JSON has the same escapes


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yields a new folder to write into; when the block ends, it replaces the folder `path`, whole.

    After an exception in the block, `path` is what it was and nothing is left beside it. Raises as `replacing`.
    """
    target = _target(path, folder=True)
    with _beside(target) as folder:
        fresh, older = Path(folder) / target.name, Path(folder) / "older"
        fresh.mkdir()
        with _full_disk_named(path):
            yield fresh
        for file in fresh.rglob("*"):
            if file.is_file():
                give_usual_mode(file)
        if target.exists():
            os.replace(target, older)
        os.replace(fresh, target)


def give_usual_mode(file: Path) -> None:
    """The mode that the process gives every new file: safetensors closes its files to everybody else."""
    mask = os.umask(0)
    os.umask(mask)
    file.chmod(0o666 & ~mask)


@contextmanager
def _full_disk_named(path: str | Path) -> Iterator[None]:
    """Where the disk is full, an OSError that names `path`; safetensors has an error of its own for that."""
    try:
        yield
    except Exception as error:
        for full in FULL:
            if full == getattr(error, "errno", None) or os.strerror(full) in str(error):
                raise OSError(full, os.strerror(full), str(path)) from error
        raise


def _target(path: str | Path, folder: bool = False) -> Path:
    try:
        target = Path(path).resolve()
        is_folder, is_other = target.is_dir(), target.exists() and not target.is_file() and not target.is_dir()
        has_folder = target.parent.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name that is too long, a null byte
        raise UserError(f"{str(path)!r} cannot be the name of a file: {error}", "file.name") from error
    if is_folder and not folder:
        raise UserError(f"{path} is a folder: name a file", "file.is_folder")
    if folder and target.is_file():
        raise UserError(f"{path} is a file: name a folder", "folder.is_file")
    if is_other:
        raise UserError(f"{path} is a device or a pipe, not a file: name a file", "file.is_device")
    if not has_folder:
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} into: create it first")
    return target


def remove_leftovers(folder: Path) -> None:
    """Removes what processes that were killed left half written in `folder`, to which nobody else writes now."""
    for path in folder.glob(f"{PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def _beside(target: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix=PREFIX, dir=target.parent)
    except OSError as error:
        raise UserError(
            f"the folder {target.parent} takes no files ({error.strerror}): write elsewhere", "folder.not_writable"
        ) from error
