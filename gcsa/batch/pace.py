"""Where a run is: the bar on a terminal, lines in a log, and the signals that ask it to stop."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.text import Text

from gcsa._utils.errors import Terminated, visible

SPEED_SECONDS = 600
"""Of work from which its speed is measured: a page may take half a minute."""
LINE_SECONDS = 300
"""Between two lines that say how far a run is, where there is no terminal for a bar."""
STOPS: dict[int, Callable[[], BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


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
def bar(shown: bool) -> Iterator[Progress | None]:
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
def stopping(pace: Pace) -> Iterator[Pace]:
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
