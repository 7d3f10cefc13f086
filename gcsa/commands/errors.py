"""Command-line errors as one sentence on stderr.

Status 2: the user can mend it. Status 1: a fault of gcsa or of a library; the traceback is kept in a file that the
sentence names. Status 130: interrupted. With HYDRA_FULL_ERROR=1 the error itself appears, with its traceback.
"""

from __future__ import annotations

import argparse
import dis
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from hydra.errors import HydraException, InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from gcsa.commands.leftovers import remove_leftovers
from gcsa.published import PACKAGE

FULL_ERROR = "HYDRA_FULL_ERROR"
WISH = "GCSA_FULL_ERROR"
"""The user's HYDRA_FULL_ERROR, which composition_errors() overwrites: for this process and those that it starts."""
os.environ.setdefault(WISH, os.environ.get(FULL_ERROR, "0"))
TRACEBACK_WANTED = os.environ[WISH] == "1"
UNKNOWN_CHOICE = re.compile(r"Could not find '(\S+)/(\S+)' Available options in '\S+': (.*?)( Config search path.*)?$")
USER_ERRORS = (FloatingPointError, OSError, HydraException, OmegaConfBaseException, MisconfigurationException)
"""The user's whoever raises them; a ValueError or an ImportError only where gcsa raises it."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {' '.join(message.split())}; --help lists what {self.prog} takes", file=sys.stderr)
        raise SystemExit(2)


def one_sentence(error: BaseException) -> str:
    """The message of `error` on one line; Hydra's errors are shortened to the bad key or choice and the good ones."""
    message = " ".join(str(error).split())
    cause = error.__cause__
    if match := re.match(r"Could not override '([^']+)'", message):
        parent = cause.parent_node if isinstance(cause, OmegaConfBaseException) else None
        known = f": choose one of {', '.join(map(str, parent))}" if isinstance(parent, dict | DictConfig) else ""
        return f"unknown key {match[1]!r}{known}"
    if match := UNKNOWN_CHOICE.search(message):
        return f"unknown {match[1]} {match[2]!r}: choose one of {', '.join(match[3].split())}"
    if isinstance(error, InstantiationException) and cause is not None:
        return one_sentence(cause)
    if isinstance(error, OSError) and error.filename:
        return f"cannot use {error.filename} ({error.strerror}): check that path, or name another"
    return message or type(error).__name__


def is_users(error: BaseException) -> bool:
    """Whether the user can mend `error`: what gcsa refuses by a `raise`, and what the system and Hydra refuse."""
    if isinstance(error, USER_ERRORS):
        return True
    return isinstance(error, ValueError | ImportError) and _raised_by_gcsa(error)


def _raised_by_gcsa(error: BaseException) -> bool:
    """Whether the error began at a `raise` in gcsa, and not in a library or as a failed operation of Python."""
    last = error.__traceback__
    if last is None:
        return False
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    return PACKAGE in Path(code.co_filename).parents and code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]


@contextmanager
def user_errors(folder: Path | None = None) -> Iterator[None]:
    """Turns every error into one line on stderr and SystemExit, with the status as above.

    An unexpected error leaves its traceback in `folder`/error.log, or in the system's temporary folder where there is no
    `folder`. Where a run is refused, what Hydra wrote into `folder` beforehand goes again.
    """
    try:
        yield
    except KeyboardInterrupt:
        if TRACEBACK_WANTED:
            raise
        print("error: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        if TRACEBACK_WANTED:
            raise
        if is_users(error):
            print(f"error: {one_sentence(error)}", file=sys.stderr)
            if folder is not None and not isinstance(error, FloatingPointError):  # that run had begun
                with suppress(OSError):
                    remove_leftovers(folder)
            raise SystemExit(2) from None
        where = _keep_traceback(error, folder)
        print(
            f"error: {type(error).__name__}: {one_sentence(error)} (unexpected: please report {where})", file=sys.stderr
        )
        raise SystemExit(1) from None


def _keep_traceback(error: Exception, folder: Path | None) -> str:
    """Where the traceback is, in words."""
    text = f"{' '.join(sys.argv)}\n{''.join(traceback.format_exception(error))}"
    try:
        if folder is not None and folder.is_dir():
            path = folder / "error.log"
            with path.open("a", encoding="utf-8") as file:  # several processes may have one folder
                file.write(text)
        else:
            descriptor, name = tempfile.mkstemp(prefix="gcsa-error-", suffix=".log")
            path = Path(name)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError:  # a full disk
        print(text, file=sys.stderr)
        return "the traceback above"
    return f"the traceback in {path}"


@contextmanager
def composition_errors() -> Iterator[None]:
    """`user_errors` around the whole of a Hydra program, for what fails before its task starts."""
    os.environ[FULL_ERROR] = "1"  # makes Hydra raise its errors to us instead of printing them itself
    with user_errors():
        yield
