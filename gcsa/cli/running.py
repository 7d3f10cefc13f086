"""What every command on images sets around its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gcsa.cli.errors import user_errors
from gcsa.cli.memory import KEPT, keep_freed_memory


@contextmanager
def running(kept: int = KEPT) -> Iterator[None]:
    """Freed blocks of up to `kept` bytes stay in the process, and errors are told as by `user_errors`."""
    keep_freed_memory(kept)
    with user_errors():
        yield


def compute_on(threads: int | None) -> None:
    """torch computes on `threads` of the CPU; None: one a core."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
