"""Command-line errors as one sentence on stderr and exit code 2; HYDRA_FULL_ERROR=1 gives the full traceback."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException, InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.utilities.exceptions import MisconfigurationException

FULL_ERROR = "HYDRA_FULL_ERROR"
TRACEBACK_WANTED = os.environ.get(FULL_ERROR) == "1"  # the user's wish, before composition_errors() uses the variable
UNKNOWN_CHOICE = re.compile(r"Could not find '(\S+)/(\S+)' Available options in '\S+': (.*?)( Config search path.*)?$")
USER_ERRORS = (
    ValueError,
    FloatingPointError,
    OSError,
    HydraException,
    OmegaConfBaseException,
    MisconfigurationException,
)


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
        return f"cannot use {error.filename} ({error.strerror}): check that path, or set another output_dir=..."
    return message or type(error).__name__


@contextmanager
def user_errors() -> Iterator[None]:
    """Turns an error the user can mend into one line and `SystemExit(2)`."""
    try:
        yield
    except USER_ERRORS as error:
        if TRACEBACK_WANTED:
            raise
        print(f"error: {one_sentence(error)}", file=sys.stderr)
        raise SystemExit(2) from None


@contextmanager
def composition_errors() -> Iterator[None]:
    """`user_errors` around the whole of a Hydra program, for what fails before its task starts."""
    os.environ[FULL_ERROR] = "1"  # makes Hydra raise its errors to us instead of printing them itself
    with user_errors():
        yield
