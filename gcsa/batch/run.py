"""The loop: what is left of the items is done, told and written down, and can be stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Generic

from gcsa._utils.atomic import remove_leftovers
from gcsa._utils.errors import visible
from gcsa.batch.ledger import Ledger
from gcsa.batch.pace import Pace, bar, stopping
from gcsa.batch.report import Report, check_report
from gcsa.batch.work import Engine, Item, Result, Work


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
            shown = stack.enter_context(bar(self.how.shown))
            pace = stack.enter_context(stopping(Pace(shown, len(self.items) - len(self.done))))
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
