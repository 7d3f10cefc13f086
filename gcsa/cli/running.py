"""What every command on images sets around its work."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from gcsa._utils.errors import UserError
from gcsa._utils.memory import KEPT, keep_freed_memory
from gcsa.batch import How
from gcsa.batch.report import check_report
from gcsa.cli.arguments import check_network
from gcsa.cli.errors import user_errors
from gcsa.cli.output import SCREEN


@contextmanager
def running(kept: int = KEPT) -> Iterator[ExitStack]:
    """Freed blocks of up to `kept` bytes stay in the process, and errors are told as by `user_errors`. Gives what is closed at the end."""
    keep_freed_memory(kept)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that cannot be printed
    with ExitStack() as stack, user_errors():  # an error is told before workers are waited for
        yield stack


def compute_on(threads: int | None) -> None:
    """torch computes on `threads` of the CPU; None: one a core."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)


WITHOUT = {
    *("model", "weights", "adapter", "inputs", "output", "report", "overwrite", "any_image", "only", "heatmap", "fix"),
    *("threads", "device", "batch_size", "workers", "scheduler", "cluster", "partition"),
}
"""Arguments that change no result, or that `mark` says otherwise."""


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What the results of a command depend on: its options, and the fingerprint of the weights, where `mark` took it."""
    return {name: value for name, value in vars(args).items() if name not in WITHOUT and value is not None}


def mark(args: argparse.Namespace, predictor: Any) -> None:
    """Takes the fingerprint of the weights in `args`, before they are folded: another machine folds to other last bits."""
    from gcsa.weights.fingerprint import digest

    args.fingerprint = digest(predictor.network, predictor.describe(), args.model)


def how(
    stack: ExitStack,
    args: argparse.Namespace,
    make: Callable[[argparse.Namespace], Any],
    shown: bool = True,
    kept: int = KEPT,
) -> How:
    """How --report, --overwrite and --workers say that a run goes; make: what makes the work from `args`, in any process. Called before the
    network is read here: workers import meanwhile."""
    output = None if args.output == SCREEN else Path(args.output)
    engine = None
    if args.workers or args.scheduler:
        from gcsa.cluster import Dask

        recipe = partial(_in_worker, make, args, kept)
        engine = Dask(recipe, args.workers, args.scheduler, args.cluster, args.partition)
        if args.cluster is None:  # jobs are asked for when all is known to be right
            engine.start(stack)
    return How(output, args.overwrite, args.report, engine, shown)


def check_run(args: argparse.Namespace, read: Iterable[Path]) -> None:
    """Raises UserError for options that cannot work, before weights are read: those of `check_workers` and `check_network`, and a --report
    that takes no file or is one of the files that are `read`."""
    check_workers(args)
    check_network(args)
    if args.report is not None:
        check_report(args.report, read, ())


def check_workers(args: argparse.Namespace) -> None:
    """Raises UserError for options of workers that do not go together, and without Dask."""
    if args.cluster is None and args.partition is not None:
        raise UserError(f"--partition {args.partition} is of --cluster: add --cluster slurm", "workers.partition")
    if args.scheduler is not None and (args.workers or args.cluster):
        raise UserError(
            f"--scheduler {args.scheduler} has workers of its own: leave out --workers and --cluster",
            "workers.scheduler",
        )
    if args.cluster is not None and args.workers is None:
        raise UserError(
            f"--cluster {args.cluster} starts a job for each of --workers: add --workers 8", "workers.missing"
        )
    if not (args.workers or args.scheduler):
        return
    if args.threads is not None:
        raise UserError(
            f"--threads {args.threads} is of one process, and a worker has one thread: leave it out", "workers.threads"
        )
    from gcsa.cluster import check_installed

    check_installed("distributed" if args.cluster is None else "dask_jobqueue")


def _in_worker(make: Callable[[argparse.Namespace], Any], args: argparse.Namespace, kept: int) -> Any:
    keep_freed_memory(kept)
    return make(args)
