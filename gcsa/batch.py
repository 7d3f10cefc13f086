"""The one way through many files, of classify, embed, segment, transcribe and orient.

A worker takes items, such as files, and gives for each, in their order, a result, or the exception that prevents it. `run` lets one worker
do all of them: it writes each result as soon as it is there, and goes on after a bad one, which it names on stderr at once. SIGINT and
SIGTERM let the item be finished first; so a run that writes a file for each item goes on where it stopped.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.text import Text

from gcsa._utils.errors import Terminated, one_line, visible

Item = TypeVar("Item")
Result = TypeVar("Result")

BAD = (ValueError, OSError, MemoryError)
"""What a bad item raises, beside a RuntimeError of torch that names memory."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of a disk: no other item could be written."""
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory")
"""Are in the RuntimeError of torch."""
SPEED_SECONDS = 600
"""Of work from which its speed is measured: a page may take half a minute."""
STOPS: dict[int, Callable[[], BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


class Pace:
    """Where a run is: for the bar, and for those who ask it to stop.

    Attributes:
        doing: the name of what is done now.
        stop: the signal that asked for the end; None before.
    """

    def __init__(self, bar: Progress | None = None, total: int = 0) -> None:
        self.bar, self.number, self.doing = bar, 0, ""
        self.stop: int | None = None
        self.task = None if bar is None else bar.add_task("", total=total)

    def show(self, name: str) -> None:
        """Says what is done now."""
        self.doing = name
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, description=escape(visible(os.path.basename(name))))

    def ahead(self, items: float) -> None:
        """So many items, or such a share of one, are done beyond those that were given back."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=self.number + items)

    def may_stop(self) -> None:
        """Ends the run here if that was asked for: in the middle of an item of which nothing is lost."""
        if self.stop is not None:
            raise STOPS[self.stop]()


def is_bad(error: Exception) -> bool:
    """Whether an error is of one item, and the others may be done."""
    if isinstance(error, OSError):
        return error.errno not in FULL and not isinstance(error, BrokenPipeError)
    return isinstance(error, BAD) or _is_memory(error)


def _is_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)
    )


def one_by_one(
    do: Callable[[Item, Pace], Result], name: Callable[[Item], str] = str
) -> Callable[[Sequence[Item], Pace], Iterator[Result | Exception]]:
    """The worker that does one item after the other by `do`."""

    def through(items: Sequence[Item], pace: Pace) -> Iterator[Result | Exception]:
        for item in items:
            pace.show(name(item))
            yield attempt(do, item, pace)

    return through


def attempt(do: Callable[..., Result], *arguments: Any) -> Result | Exception:
    """What `do` returns, or the error of a bad item; any other is raised."""
    try:
        return do(*arguments)
    except Exception as error:
        if not is_bad(error):
            raise
        return error


@dataclass
class Outcome:
    """What a run came to: how many items, or parts of them, there were, and a sentence for each that failed."""

    total: int = 0
    failed: list[str] = field(default_factory=list)

    def fail(self, sentence: str) -> None:
        """Names what failed on stderr."""
        self.failed.append(sentence)
        print(visible(sentence), file=sys.stderr, flush=True)

    def tell(self, done: str) -> int:
        """Says on stderr how many could not be `done`; returns the exit code."""
        if self.failed:
            print(f"{len(self.failed)} of {self.total} could not be {done}", file=sys.stderr)
        return 1 if self.failed else 0


def run(
    items: Sequence[Item],
    work: Callable[[Sequence[Item], Pace], Iterable[Result | Exception]],
    finish: Callable[[Item, Result, float], object],
    *,
    name: Callable[[Item], str] = str,
    smaller: str = "cut the image",
    shown: bool = True,
) -> Outcome:
    """Lets `work` do all `items`, and `finish` write each: the item, its result, and the seconds that it took.

    Args:
        items: in the order in which they are done.
        work: a worker, which gives back an exception for a bad item.
        finish: what it raises is of the item too.
        name: of an item, for messages.
        smaller: what to do about an item that there is not enough memory for.
        shown: whether the bar may be shown, on a terminal only.

    Raises KeyboardInterrupt or Terminated behind the item in which a signal came.
    """
    outcome = Outcome(len(items))
    with _bar(shown) as bar, _stopping(Pace(bar, len(items))) as pace:
        started = time.monotonic()
        if items:
            pace.show(name(items[0]))
        for item, result in zip(items, work(items, pace), strict=True):
            if not isinstance(result, Exception):
                failure = attempt(finish, item, result, time.monotonic() - started)
            else:
                failure = result
            if isinstance(failure, Exception):
                outcome.fail(sentence(failure, name(item), smaller))
            started = time.monotonic()
            pace.number += 1
            pace.ahead(0)
            pace.may_stop()
    return outcome


def sentence(error: Exception, name: str, smaller: str) -> str:
    """Why an item failed, with its name, on one line."""
    if _is_memory(error):
        return f"{name}: not enough memory: {smaller}"
    message = one_line(error, limit=None)
    return message if visible(name) in message else f"{name}: {message}"


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
