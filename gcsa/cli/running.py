"""What every command on images sets around its work."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gcsa.batch import How
from gcsa.cli.errors import user_errors
from gcsa.cli.memory import KEPT, keep_freed_memory
from gcsa.cli.output import SCREEN


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


WITHOUT = {
    *("model", "weights", "adapter", "inputs", "output", "report", "overwrite", "any_image", "only", "heatmap", "fix"),
    *("threads", "device", "batch_size"),
}
"""Arguments that change no result, or that `mark` says otherwise."""


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What the results of a command depend on: its options, and the fingerprint of the weights, where `mark` took it."""
    return {name: value for name, value in vars(args).items() if name not in WITHOUT and value is not None}


def mark(args: argparse.Namespace, predictor: Any) -> None:
    """Takes the fingerprint of the weights in `args`, before they are folded: another machine folds to other last bits."""
    from gcsa.weights.fingerprint import digest

    args.fingerprint = digest(predictor.network, predictor.describe(), args.model)


def how(args: argparse.Namespace, shown: bool = True) -> How:
    """How --report and --overwrite say that a run goes."""
    output = None if args.output == SCREEN else Path(args.output)
    return How(output=output, overwrite=args.overwrite, report=args.report, shown=shown)
