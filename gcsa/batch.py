"""The one way through many files, of classify, embed, segment, transcribe and orient.

`Work` says what a command does with an item, such as a file; `run` does all of them. It passes over what an earlier run finished by the same
weights and options, which a `Ledger` remembers, goes on after a bad item, which it names on stderr at once, and writes the results down as they
come. SIGINT and SIGTERM let the item be finished first; the same command then goes on where it stopped. `gcsa.cluster` does the same in several
processes.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from abc import ABC
from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import IO, Any, Generic, Protocol, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.text import Text

from gcsa._utils.atomic import check_writable, remove_leftovers, replacing
from gcsa._utils.errors import Terminated, UserError, one_line, visible

Item = TypeVar("Item")

BAD = (ValueError, OSError, MemoryError)
"""What a bad item raises, beside a RuntimeError of torch that names memory."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of a disk: no other item could be written."""
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory")
"""Are in the RuntimeError of torch."""
SPEED_SECONDS = 600
"""Of work from which its speed is measured: a page may take half a minute."""
LINE_SECONDS = 300
"""Between two lines that say how far a run is, where there is no terminal for a bar."""
STOPS: dict[int, Callable[[], BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
COLUMNS = ("file", "status", "seconds", "confidence", "message")
"""Of a report, before those of the command."""
MOST_DIFFERENCES = 3


@dataclass(frozen=True)
class Result:
    """What came of an item.

    Attributes:
        values: what JSON can hold; "confidence" and the `columns` of the work stand in the report.
        failed: a sentence for each part of it that failed.
        finished: whether it needs not be done again.
        parts: how many it has.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    failed: Sequence[str] = ()
    finished: bool = True
    parts: int = 1


class Work(ABC, Generic[Item]):
    """What a command does with an item. Each process makes its own, with the network.

    Attributes:
        settings: weights and options on which the results depend, as JSON: what was done by others is not taken for done.
        together: how many items are done at a time. Those of one batch stay in it whatever is done already, and wherever: the last bits of an
            answer depend on the other images of its batch.
        smaller: what to do about an item that there is not enough memory for.
        columns: more columns of the report.
    """

    settings: Mapping[str, Any] = {}
    together: int = 1
    smaller: str = "cut the image"
    columns: Sequence[str] = ()

    def name(self, item: Item) -> str:
        """For messages."""
        return str(item)

    def file(self, item: Item) -> Path:
        """What is read: another file of that name is another item."""
        return Path(str(item))

    def outputs(self, item: Item) -> Sequence[Path]:
        """The files that are written for it."""
        return ()

    def chunks(self, items: Sequence[Item], done: Collection[int]) -> Iterator[Sequence[int]]:
        """The numbers of the items that go to a process at a time."""
        for start in range(0, len(items), self.together):
            chunk = range(start, min(start + self.together, len(items)))
            if not all(number in done for number in chunk):
                yield chunk

    def parts(self, item: Item, most: int) -> int:
        """Into how many parts, of at most so many, several processes divide an item before one of them does it."""
        return 1

    def part(self, item: Item, number: int, parts: int) -> None:
        """Does the part `number` of `parts`: what it writes is there when the item is done, which does what is not."""
        raise NotImplementedError

    def do(self, items: Sequence[Item], pace: Pace) -> Iterable[Result | Exception]:
        """What comes of each, in their order: a result, or the error of a bad item."""
        for item in items:
            pace.show(self.name(item))
            yield attempt(self.one, item, pace)

    def one(self, item: Item, pace: Pace) -> Result:
        """What comes of an item, for work that takes one at a time."""
        raise NotImplementedError

    def results(self, items: Sequence[Item], pace: Pace) -> Iterator[tuple[float, Result]]:
        """The seconds of each item, and what comes of it; for a bad one a sentence."""
        started = time.monotonic()
        for item, found in zip(items, self.do(items, pace), strict=True):
            if isinstance(found, Exception):
                found = Result(failed=[sentence(found, self.name(item), self.smaller)], finished=False)
            yield round(time.monotonic() - started, 3), found
            started = time.monotonic()


class Engine(Protocol):
    """Does the work in other processes."""

    def spread(
        self, work: Work[Any], items: Sequence[Any], chunks: Iterable[Sequence[int]], pace: Pace
    ) -> Generator[tuple[int, float, Result], None, None]:
        """The number of an item, its seconds and its result, as they come. After `pace.stop` nothing new is begun."""
        ...


class Pace:
    """Where a run is: for the bar, and for those who ask it to stop.

    Attributes:
        doing: the name of what is done now.
        stop: the signal that asked for the end; None before.
    """

    def __init__(self, bar: Progress | None = None, total: int = 0) -> None:
        self.bar, self.number, self.total, self.doing = bar, 0, total, ""
        self.stop: int | None = None
        self.task = None if bar is None else bar.add_task("", total=total)
        self.started = self.told = time.monotonic()

    def show(self, name: str) -> None:
        """Says what is done now."""
        self.doing = name
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, description=escape(visible(os.path.basename(name))))

    def ahead(self, items: float) -> None:
        """So many items, or such a share of one, are done beyond those that were given back."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=self.number + items)

    def next(self) -> None:
        """One more is done. Without a terminal, a line says it now and then."""
        self.number += 1
        self.ahead(0)
        now = time.monotonic()
        if self.total and self.bar is None and now - self.told > LINE_SECONDS:
            self.told, speed = now, self.number / (now - self.started)
            left = (self.total - self.number) / speed / 60
            words = f"{self.number} of {self.total}, {60 * speed:.1f} a minute, {left:.0f} minutes left"
            print(words, file=sys.stderr, flush=True)

    def may_stop(self) -> None:
        """Ends the run here if that was asked for: in the middle of an item of which nothing is lost."""
        if self.stop is not None:
            raise STOPS[self.stop]()


def is_bad(error: BaseException) -> bool:
    """Whether an error is of one item, and the others may be done."""
    if isinstance(error, OSError):
        return error.errno not in FULL and not isinstance(error, BrokenPipeError)
    return isinstance(error, BAD) or _is_memory(error)


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)
    )


def attempt(do: Callable[..., Any], *arguments: Any) -> Any:
    """What `do` returns, or the error of a bad item; any other is raised."""
    try:
        return do(*arguments)
    except Exception as error:
        if not is_bad(error):
            raise
        return error


def sentence(error: BaseException, name: str, smaller: str) -> str:
    """Why an item failed, with its name, on one line."""
    if _is_memory(error):
        return f"{name}: not enough memory: {smaller}"
    message = one_line(error, limit=None)
    return message if visible(name) in message else f"{name}: {message}"


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


class Report:
    """A table of the items, a row each, for a spreadsheet: rows are added as items are done, and written in their order at the end."""

    def __init__(self, path: str, columns: Sequence[str], found: Iterable[tuple[Path, float, Result]]) -> None:
        """found: what is done already."""
        self.path, self.columns = Path(path), [*COLUMNS, *columns]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write(found)
        self.stream = self.path.open("a", encoding="utf-8", newline="")

    def add(self, *found: Any) -> None:
        """The row of an item: its file, seconds and result."""
        csv.writer(self.stream, lineterminator="\n").writerow(self._row(*found))
        self.stream.flush()

    def close(self, found: Iterable[tuple[Path, float, Result]]) -> None:
        """Writes all rows anew."""
        self.stream.close()
        self._write(found)

    def _write(self, found: Iterable[tuple[Path, float, Result]]) -> None:
        with replacing(self.path) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(self._row(*one) for one in found)

    def _row(self, file: Path, seconds: float, result: Result) -> list[str]:
        status = "failed" if not result.finished else "partly" if result.failed else "done"
        name = os.fsencode(file).decode(errors="backslashreplace")  # in UTF-8, which the name of a file need not be
        known = {"file": name, "status": status, "seconds": f"{seconds:.2f}", "message": "; ".join(result.failed)}
        values = known | dict(result.values)
        if isinstance(confidence := values.get("confidence"), float):
            values["confidence"] = f"{confidence:.4f}"
        return ["" if values.get(name) is None else str(values[name]) for name in self.columns]


def check_report(path: str, read: Iterable[Path], written: Iterable[Path]) -> None:
    """Raises UserError where `path` takes no file, is one that is read or `written`, or holds anything but a report."""
    target = Path(path).resolve()
    check_writable(target if target.parent.is_dir() else next(p for p in target.parents if p.exists()) / target.name)
    if any(target == file.resolve() for file in read):
        raise UserError(
            f"--report {path} is one of the inputs, and would be overwritten: name another file", "report.is_input"
        )
    if any(target == file.resolve() for file in written):
        raise UserError(f"--report {path} is where --output writes: name another file", "report.is_output")
    if target.is_file() and target.stat().st_size:
        with target.open("rb") as file:
            if not file.readline(200).startswith(",".join(COLUMNS).encode()):
                raise UserError(
                    f"--report {path} is there already, and is no report: name another file", "report.other_file"
                )


@dataclass(frozen=True)
class How:
    """How a run goes: the options that all commands have.

    Attributes:
        output: the file or folder to write.
        overwrite: what was done by other weights or options is done anew.
        report: the table to write.
        engine: other processes that do the work; None: this one.
        shown: whether the bar may be shown, on a terminal only.
    """

    output: Path | None = None
    overwrite: bool = False
    report: str | None = None
    engine: Engine | None = None
    shown: bool = True


@dataclass
class Outcome:
    """What a run came to: how many items, or parts of them, there were, and how many failed."""

    total: int = 0
    failed: int = 0

    def add(self, result: Result) -> None:
        """Counts an item, and names what failed of it on stderr."""
        self.total += result.parts
        self.failed += len(result.failed)
        for words in result.failed:
            print(visible(words), file=sys.stderr, flush=True)

    def tell(self, done: str) -> int:
        """Says on stderr how many could not be `done`; returns the exit code."""
        if self.failed:
            print(f"{self.failed} of {self.total} could not be {done}", file=sys.stderr)
        return 1 if self.failed else 0


class Run(Generic[Item]):
    """All `items` through `work`. A context, in which the results are there; at its end, they go if they were `written` into a file.

    Args:
        items: in the order of their results.
        ledger: the file that remembers the results; None for a run that cannot go on.
        in_folder: whether each item has files of its own, so that the ledger stays beside them.

    Raises UserError where results of other weights or options are there.
    """

    def __init__(
        self, items: Sequence[Item], work: Work[Item], ledger: Path | None, how: How = How(), in_folder: bool = False
    ) -> None:
        self.items, self.work, self.how, self.in_folder = items, work, how, in_folder
        if how.report is not None:
            beside = (path for path in (ledger, how.output) if path is not None)
            outputs = (path for item in items for path in work.outputs(item))
            check_report(how.report, map(work.file, items), chain(beside, outputs))
        self.ledger = Ledger(ledger, work.settings, how.overwrite)
        try:
            self.at = self.ledger.find(work, items)
        except BaseException:
            self.ledger.close()
            raise
        self.done = frozenset(number for number, at in enumerate(self.at) if at >= 0)
        self.finished = len(self.done)

    def __enter__(self) -> Run[Item]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.ledger.close(remove=kind is None and (self.ledger.empty or not self.in_folder))

    def do(self, finish: Callable[[Item, Result], object] | None = None) -> Outcome:
        """Does what is left; `finish` is called with each item and its result, in their order.

        Raises KeyboardInterrupt or Terminated behind the item in which a signal came.
        """
        if self.done:
            words = f"{len(self.done)} of {len(self.items)} are done already, by the same weights and options"
            print(words, file=sys.stderr)
        if self.in_folder and self.ledger.path is not None and self.ledger.path.exists():
            remove_leftovers(self.ledger.path.parent)
        outcome, left = Outcome(), (number for number in range(len(self.items)) if number not in self.done)
        with ExitStack() as stack:
            report = None
            if self.how.report is not None:
                report = Report(self.how.report, self.work.columns, self._rows())
                stack.callback(lambda: report.close(self._rows()))
            bar = stack.enter_context(_bar(self.how.shown))
            pace = stack.enter_context(_stopping(Pace(bar, len(self.items) - len(self.done))))
            due = next(left, None)
            if due is not None:
                pace.show(self.work.name(self.items[due]))
            spread = self._here if self.how.engine is None else self.how.engine.spread
            found = spread(self.work, self.items, self._chunks(), pace)
            stack.callback(found.close)  # ends the other processes
            for number, seconds, result in found:
                if number in self.done:  # it was done again with the others of its batch
                    continue
                self.at[number] = self.ledger.add(self.work, self.items[number], seconds, result)
                self.finished += result.finished
                outcome.add(result)
                if report is not None:
                    report.add(self.work.file(self.items[number]), seconds, result)
                while finish is not None and due is not None and self.at[due] >= 0:
                    finish(self.items[due], self.ledger[self.at[due]][1])
                    due = next(left, None)
                pace.next()
            self._may_stop(pace)
        return outcome

    def _chunks(self) -> Iterator[Sequence[int]]:
        for chunk in self.work.chunks(self.items, self.done):
            new = [self.items[number] for number in chunk if number not in self.done]
            if self.ledger.path is not None and any(map(self.work.outputs, new)):
                self.ledger.begin(self.work, new)
            yield chunk

    def _here(
        self, work: Work[Item], items: Sequence[Item], chunks: Iterable[Sequence[int]], pace: Pace
    ) -> Generator[tuple[int, float, Result], None, None]:
        for chunk in chunks:
            found = work.results([items[number] for number in chunk], pace)
            for number, (seconds, result) in zip(chunk, found, strict=True):
                yield number, seconds, result
                self._may_stop(pace)

    def _may_stop(self, pace: Pace) -> None:
        if pace.stop is not None and self.ledger.path is not None:
            words = f"{self.finished} of {len(self.items)} are finished: the same command goes on"
            print(words, file=sys.stderr)
        pace.may_stop()

    def _rows(self) -> Iterator[tuple[Path, float, Result]]:
        for item, at in zip(self.items, self.at, strict=True):
            if at >= 0:
                yield self.work.file(item), *self.ledger[at]

    def results(self) -> Iterator[tuple[Item, Result]]:
        """The items that were done, in earlier runs as well, and their results, in their order."""
        for item, at in zip(self.items, self.at, strict=True):
            if at >= 0:
                yield item, self.ledger[at][1]


def say(line: str) -> None:
    """Prints a line, until nobody reads on: the files are written all the same."""
    try:
        print(visible(line), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class AMinute(ProgressColumn):
    """How many are done in a minute."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{60 * speed:.1f} a minute")


@contextmanager
def _bar(shown: bool) -> Iterator[Progress | None]:
    """A bar on stderr, where that is a terminal. Lines for that terminal stand above it; rich would send those for a file or a pipe there
    as well."""
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield None
        return
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), AMinute())
    to_terminal = sys.stdout.isatty()
    with Progress(
        *columns, console=console, redirect_stdout=to_terminal, speed_estimate_period=SPEED_SECONDS
    ) as progress:
        yield progress


@contextmanager
def _stopping(pace: Pace) -> Iterator[Pace]:
    """The first SIGINT or SIGTERM only sets `pace.stop`, and is answered at once, even while the main thread computes; the second one
    raises. Signals that are ignored, and those of a program in whose threads this runs, are left."""
    if threading.current_thread() is not threading.main_thread():
        yield pace
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if pace.stop is not None:
            raise STOPS[number]()
        pace.stop = number

    with ExitStack() as stack:
        for number in STOPS:
            if (before := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                signal.signal(number, handle)
                stack.callback(signal.signal, number, before)
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        stack.callback(ours.close)
        listener = threading.Thread(target=_answer, args=(ours, pace), daemon=True)
        listener.start()
        stack.callback(listener.join)
        stack.callback(theirs.close)  # which ends the thread
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False))
        yield pace


def _answer(signals: socket.socket, pace: Pace) -> None:
    """Says once that the item is finished first. Python writes the number of a signal into the socket when it arrives; its handler waits
    for the main thread, which may be in the middle of a network."""
    told = False
    with suppress(OSError):
        while received := signals.recv(1):
            if received[0] in STOPS and not told:
                told = True
                line = f"finishing {visible(pace.doing)}, then stopping; the same again stops at once"
                print(line, file=sys.stderr, flush=True)
