"""Text that a command writes: into a file, whole or not at all, or to the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from gcsa._utils.atomic import replacing
from gcsa._utils.errors import visible

SCREEN = "-"
MOST_NAMED = 5
"""Images that a warning names."""
DOUBTFUL = 3
"""The exit code where there is a result of everything, and somebody has to look at some."""


def part_of(name: str) -> Path | None:
    """The file that remembers the results until `name` is written; None for the screen."""
    return None if name == SCREEN else Path(f"{name}.part")


@contextmanager
def written(name: str) -> Iterator[TextIO]:
    """A file to write to, in UTF-8 (names of files that are not: with escapes), that replaces `name` at the end, and only if nothing went wrong; `SCREEN` is stdout.

    Raises SystemExit with status 1 where the reader of stdout, such as head, has seen enough.
    """
    if name != SCREEN:
        with replacing(name) as part, part.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            yield file
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except OSError as error:  # nobody reads on, or a disk is full: Python would try again at its exit, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(1) from None
        raise


def warn_out_of_distribution(ood_scores: Iterable[tuple[str, float | None]]) -> None:
    """Says in one line on stderr which images, by their names, are unlike those of training: an OOD score above 1."""
    known = [(name, score) for name, score in ood_scores if score is not None]
    unlike = sorted([row for row in known if row[1] > 1], key=lambda row: -row[1])
    named = [f"{visible(name)} ({score:.1f})" for name, score in unlike]
    _warn(named, f"of {len(known)} images are unlike those of training")


def warn_slides_out_of_distribution(slides: Iterable[tuple[str, int, int | None]]) -> bool:
    """Says in one line on stderr of which slides, by their names, more than half of the patches (how many, and how many of them have an OOD
    score above 1) are unlike the images of training; returns whether there are any."""
    known = [(name, above / patches, patches) for name, patches, above in slides if above is not None]
    unlike = sorted([row for row in known if row[1] > 0.5], key=lambda row: -row[1])
    named = [f"{visible(name)} ({share:.0%} of {count:,} patches)" for name, share, count in unlike]
    _warn(named, f"of {len(known)} slides are for the most part unlike the images of training")
    return bool(unlike)


def _warn(named: Sequence[str], what: str) -> None:
    if named:
        rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        print(
            f"warning: {len(named)} {what} (OOD score above 1): {', '.join(named[:MOST_NAMED])}{rest}; "
            "look at their results before you use them",
            file=sys.stderr,
        )
