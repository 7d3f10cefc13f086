"""What a command does with an item, such as a file, and what may come of it: a result, or the error of a bad item."""

from __future__ import annotations

import errno
import time
from abc import ABC
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from gcsa._utils.errors import one_line, visible
from gcsa.batch.pace import Pace

Item = TypeVar("Item")

BAD = (ValueError, OSError, MemoryError)
"""What a bad item raises, beside a RuntimeError of torch that names memory."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of a disk: no other item could be written."""
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory")
"""Are in the RuntimeError of torch."""


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
