"""What a worker process of `gcsa.cluster` on this machine does first and last (a preload of Dask): it imports what takes the longest, while the
command reads its network, and is gone at once when it is closed. Ctrl-C, which goes to all processes of a terminal, does not end it: the command does."""

import os
import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)

import gcsa.models  # noqa: E402, F401


def dask_teardown(worker: object) -> None:
    """Leaves out the end of the interpreter, of torch above all: 1.1 s in which the command waits."""
    os._exit(0)
