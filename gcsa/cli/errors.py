"""Command-line errors as one sentence on stderr.

The type of the error decides the status. 2: UserError and OSError, which the user can mend. 1: any other, a fault of gcsa or
of a library; the sentence names the file that keeps the traceback. 130: interrupted; 143: ended by SIGTERM. With HYDRA_FULL_ERROR=1 the error itself
appears, with its traceback.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from gcsa._utils.errors import Terminated, UserError, one_line, visible

FULL_ERROR = "HYDRA_FULL_ERROR"
WISH = "GCSA_FULL_ERROR"
"""The user's HYDRA_FULL_ERROR, for this process and those that it starts: Hydra programs overwrite that variable."""
os.environ.setdefault(WISH, os.environ.get(FULL_ERROR, "0"))
TRACEBACK_WANTED = os.environ[WISH] == "1"
USERS: tuple[type[Exception], ...] = (UserError, OSError)
"""Errors that the user can mend, whoever raises them."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {one_line(message, limit=None)}: {self.prog} --help lists what can be given", file=sys.stderr)
        raise SystemExit(2)


@contextmanager
def _told_of_sigterm() -> Iterator[None]:
    """SIGTERM as `Terminated`, unless it has a handler already, or this is a thread of a program with its own."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(*_: object) -> NoReturn:
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class RunFailed(Exception):
    """One run of several failed, and the others go on: its sentence, and the status that the program then ends with."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence, status)
        self.sentence, self.status = sentence, status

    def __str__(self) -> str:
        return self.sentence


def one_sentence(error: BaseException) -> str:
    """The message of `error` on one line."""
    if isinstance(error, OSError) and error.filename:
        return f"cannot use {error.filename} ({error.strerror}): check that path, or name another"
    return one_line(error, limit=None)


@contextmanager
def user_errors(
    folder: Path | None = None,
    users: tuple[type[Exception], ...] = USERS,
    explain: Callable[[BaseException], str] = one_sentence,
    refused: Callable[[], None] = lambda: None,
    one_of_several: bool = False,
) -> Iterator[None]:
    """Turns every error into one line on stderr and SystemExit, with the status as above.

    folder: where the traceback of an unexpected error is kept, as error.log; None: in the system's temporary folder.
    users: errors that the user can mend, whoever raises them. explain: makes the sentence. refused: called after an
    error that the user can mend. one_of_several: after the line, raise RunFailed instead of SystemExit.
    """
    try:
        with _told_of_sigterm():
            yield
    except (KeyboardInterrupt, Terminated) as error:
        if TRACEBACK_WANTED:
            raise
        word, status = ("interrupted", 130) if isinstance(error, KeyboardInterrupt) else ("ended by SIGTERM", 143)
        print(f"error: {word}", file=sys.stderr)
        raise SystemExit(status) from None
    except Exception as error:
        if TRACEBACK_WANTED:
            raise
        if isinstance(error, RunFailed):
            sentence, status = error.sentence, error.status
        elif isinstance(error, users):
            sentence, status = explain(error), 2
            with suppress(OSError):
                refused()
        else:
            where = _keep_traceback(error, folder)
            sentence, status = f"{type(error).__name__}: {explain(error)} (unexpected: please report {where})", 1
        print(f"error: {visible(sentence)}", file=sys.stderr)
        raise (RunFailed(sentence, status) if one_of_several else SystemExit(status)) from None


def tell_failed(failed: Sequence[str], total: int, done: str) -> None:
    """Lists on stderr the sentences of those of `total` images or lines that could not be `done`."""
    if failed:
        print(f"{len(failed)} of {total} could not be {done}:", *map(visible, failed), sep="\n  ", file=sys.stderr)


def _keep_traceback(error: Exception, folder: Path | None) -> str:
    """Where the traceback is, in words."""
    shown = f"{' '.join(sys.argv)}\n{''.join(traceback.format_exception(error))}"
    text = shown.encode(errors="backslashreplace")  # names of files need not be UTF-8
    try:
        if folder is not None and folder.is_dir():
            path = folder / "error.log"
            with path.open("ab") as file:  # several processes may have one folder
                file.write(text)
        else:
            descriptor, name = tempfile.mkstemp(prefix="gcsa-error-", suffix=".log")
            path = Path(name)
            with open(descriptor, "wb") as file:
                file.write(text)
    except OSError:  # a full disk
        print(shown, file=sys.stderr)
        return "the traceback above"
    return f"the traceback in {path}"
