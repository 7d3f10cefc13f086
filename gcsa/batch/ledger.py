"""What is finished, and by which settings: the file from which a run goes on."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from gcsa._utils.errors import UserError
from gcsa.batch.work import Item, Result, Work

MOST_DIFFERENCES = 3


@dataclass(slots=True)
class Entry:
    """What the lines of a ledger say of an item.

    Attributes:
        at: where the line of its last result begins.
        stamp: of the file that was read for it.
        begun: the settings of a run that may have written some of its files and did not finish it.
        files: the settings by which each of its files was written, by name; of an item without files, the result itself, as "".
    """

    at: int = -1
    stamp: str = ""
    begun: dict[str, Any] | None = None
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


class Ledger:
    """What came of each item, and by which settings: lines of JSON in a file that grows, for a run that goes on where it stopped.

    A line of "settings" stands before those of the items that were done by them, and one of "begun" before each file that is written: a
    process that was killed left it whole or not at all, and it is written anew. A line that was cut off is left out. Results stay in the
    file, so that memory does not grow with them.

    Attributes:
        empty: whether no item is finished, of this run or another.
    """

    def __init__(self, file: Path | None, settings: Mapping[str, Any], overwrite: bool = False) -> None:
        """file: None keeps nothing. overwrite: what is there by other settings is done anew."""
        self.path, self.overwrite = file, overwrite
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.fresh = self.empty = True
        self.made = False
        self.folder = Path.cwd() if file is None else file.parent.resolve()
        self.stream = _locked(file) if file is not None and file.is_file() else None

    def find(self, work: Work[Item], items: Sequence[Item]) -> array[int]:
        """Where the result of each item is that is finished by these settings, -1 for the others.

        Raises UserError where other weights or options finished it, or nobody knows who, and for a file that is no ledger.
        """
        if self.path is None:
            return array("q", [-1]) * len(items)
        known = self._read()
        return array("q", (self._find(known.get(self.key(work, item), Entry()), work, item) for item in items))

    def _read(self) -> dict[str, Entry]:
        known: dict[str, Entry] = {}
        if self.stream is None:
            return known
        settings: dict[str, Any] = {}
        while (line := self.stream.readline()).endswith(b"\n"):
            try:
                row = json.loads(line)
                if "settings" in row:
                    settings = row["settings"]
                for key in row.get("begun", ()):
                    known.setdefault(key, Entry()).begun = settings
                if "item" in row and row["result"]["finished"]:
                    self.empty = False
                    entry = known.setdefault(row["item"], Entry())
                    entry.at, entry.stamp, entry.begun = self.stream.tell() - len(line), row["stamp"], None
                    entry.files |= dict.fromkeys(row["files"] or [""], settings)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise UserError(
                    f"{self.path} is there, and is not of an earlier run: name another --output", "ledger.foreign"
                ) from None
        self.stream.seek(-len(line), os.SEEK_CUR)
        self.stream.truncate()
        return known

    def _find(self, entry: Entry, work: Work[Item], item: Item) -> int:
        outputs = {path.name: path for path in work.outputs(item)}
        there: dict[str, Path | None] = {name: path for name, path in outputs.items() if path.exists()}
        if not outputs and entry.files:
            there = {"": self.path}
        for name, path in there.items():
            owner = entry.files.get(name) if entry.begun is None else entry.begun
            if self.overwrite or owner == self.settings:
                continue
            if owner is None:
                raise UserError(
                    f"{path} is there, and no run that is known here wrote it: --overwrite writes it anew, or name another --output",
                    "output.unknown",
                )
            raise UserError(
                f"{path} is there, made {_differences(owner, self.settings)}: --overwrite makes it anew, or name another --output",
                "output.other_settings",
            )
        whole = entry.begun is None and len(there) == max(1, len(outputs)) and entry.stamp == stamp(work.file(item))
        return entry.at if whole and all(entry.files.get(name) == self.settings for name in there) else -1

    def key(self, work: Work[Item], item: Item) -> str:
        """An item by its file, as seen from here: both may move to another folder together."""
        file, name = str(work.file(item)), work.name(item)
        return os.path.relpath(file, self.folder) + name.replace(file, "")

    def begin(self, work: Work[Item], items: Iterable[Item]) -> None:
        """Files of these are about to be written."""
        self._append({"begun": [self.key(work, item) for item in items]})

    def add(self, work: Work[Item], item: Item, seconds: float, result: Result) -> int:
        """Writes down what came of an item; returns where."""
        self.empty = self.empty and not result.finished
        about = {"stamp": stamp(work.file(item)), "files": [path.name for path in work.outputs(item)]}
        return self._append({"item": self.key(work, item), **about, "seconds": seconds, "result": asdict(result)})

    def _append(self, row: Mapping[str, Any]) -> int:
        if self.stream is None and self.path is not None:
            self.made = not self.path.parent.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.stream = _locked(self.path)
        elif self.stream is None:
            self.stream = tempfile.TemporaryFile()  # noqa: SIM115
        self.stream.seek(0, os.SEEK_END)
        if self.fresh:
            self.stream.write(json.dumps({"settings": self.settings}).encode() + b"\n")
            self.fresh = False
        at = self.stream.tell()
        self.stream.write(json.dumps(row).encode() + b"\n")
        self.stream.flush()
        return at

    def __getitem__(self, at: int) -> tuple[float, Result]:
        """The seconds and the result of the item whose line is there."""
        assert self.stream is not None
        self.stream.seek(at)
        row = json.loads(self.stream.readline())
        return row["seconds"], Result(**row["result"])

    def close(self, remove: bool = False) -> None:
        """Lets the file go. remove: what it remembers is written elsewhere."""
        if self.stream is not None:
            self.stream.close()
            if self.path is not None and remove:
                self.path.unlink(missing_ok=True)
                with suppress(OSError):  # something is in it
                    if self.made:
                        self.path.parent.rmdir()


def _locked(file: Path) -> IO[bytes]:
    """The file of one run at a time."""
    stream = file.open("r+b" if file.exists() else "w+b")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        raise UserError(
            f"{file} is of a run that is at work: wait for its end, or name another --output", "output.in_use"
        ) from None
    except OSError:  # a file system without locks
        pass
    return stream


def stamp(path: Path) -> str:
    """What changes with a file: its bytes and time; of a folder, such as one of OME-Zarr, the bytes in it."""
    try:
        if path.is_dir():
            return str(sum(Path(top, name).stat().st_size for top, _, names in os.walk(path) for name in names))
        found = path.stat()
        return f"{found.st_size} {found.st_mtime_ns}"
    except OSError:
        return ""


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which settings an earlier run differs, in words."""
    if before.get("fingerprint") != now.get("fingerprint"):
        return "with other weights"
    keys = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    shown = [f"--{key.replace('_', '-')} {_shown(before.get(key))} (now {_shown(now.get(key))})" for key in keys]
    return "with " + ", ".join(shown[:MOST_DIFFERENCES]) + (" and others" if len(keys) > MOST_DIFFERENCES else "")


def _shown(value: Any) -> str:
    if value is None:
        return "left out"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
