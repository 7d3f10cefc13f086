"""The work of `gcsa.batch` in several processes, on this machine or on a cluster, by Dask: the one place that imports it.

Each worker process has one thread, makes its own `Work`, with the network, once, and gets chunks of items. The process of the command alone
writes down what came of them, so that nothing is lost with a worker. A chunk whose worker dies is done again, up to `TRIES` times; then its items
are done one by one, and what still ends its worker is reported. Whoever reads an item reads it from the same path: machines share their files.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from glob import glob
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

import psutil

from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.batch import Pace, Result, Work

Recipe = Callable[[], Work[Any]]
TRIES = 4
"""Workers that may die of a chunk, or of an item by itself, before it is reported."""
CONNECT = "30s"
"""For how long a scheduler is waited for."""
MEMORY = "8 GB"
"""Of a job, where jobqueue.yaml does not say it."""
CLUSTERS = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
"""Of dask-jobqueue."""
LOOK_SECONDS = 0.2
"""Between two looks at whether the run is to stop."""
ENVIRONMENT = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MALLOC_ARENA_MAX": 1}
"""Of a worker on this machine. Dask's own has memory given back at once, so that half of the time goes into asking for it anew; and the work
runs in a thread, whose memory is kept like that of the main one only where both share it."""
COUNT_SECONDS = 5.0
"""Between two counts of the workers, which come and go."""

_works: dict[str, Work[Any]] = {}
"""Of a worker process."""
_one = threading.Lock()
"""A worker of another's cluster may have several threads, and a network is for one."""


@dataclass(frozen=True)
class Dask:
    """An `Engine`.

    Attributes:
        recipe: makes the work in a worker.
        workers: how many there are, or how many jobs of `cluster`; None for those that a scheduler has.
        scheduler: the address of one that is there, such as tcp://node:8786.
        cluster: one of `CLUSTERS`, whose jobs are workers.
        partition: the queue of the jobs.
    """

    recipe: Recipe
    workers: int | None = None
    scheduler: str | None = None
    cluster: str | None = None
    partition: str | None = None

    def spread(
        self, work: Work[Any], items: Sequence[Any], chunks: Iterable[Sequence[int]], pace: Pace
    ) -> Generator[tuple[int, float, Result], None, None]:
        """As `Engine` says. Raises UserError where there is no scheduler, or no longer."""
        from distributed import Future, KilledWorker

        token, waiting, at_work = uuid4().hex, iter(chunks), dict[str, tuple[Future, Sequence[int]]]()
        again: list[Sequence[int]] = []
        ended: SimpleQueue[Future] = SimpleQueue()
        with ExitStack() as stack:
            client, grow = self._client(stack)

            def begin(chunk: Sequence[int]) -> None:
                future = client.submit(_do, token, self.recipe, [items[number] for number in chunk], pure=False)
                at_work[str(future.key)] = future, chunk
                future.add_done_callback(ended.put)

            looked, slots = 0.0, 1
            while True:
                if time.monotonic() - looked > COUNT_SECONDS and client.status == "running":
                    with suppress(OSError):
                        looked, there = time.monotonic(), len(client.nthreads())
                        slots = max(1, there)
                        if there < (self.workers or 0):  # whoever should start a worker again may have given up
                            grow()
                while pace.stop is None and len(at_work) < slots:
                    chunk = again.pop() if again else next(waiting, None)
                    if chunk is None:
                        break
                    begin(chunk)
                if not at_work:
                    return
                first = work.name(items[next(iter(at_work.values()))[1][0]])
                pace.show(first if len(at_work) == 1 else f"{first} and {len(at_work) - 1} others")
                try:
                    future = ended.get(timeout=LOOK_SECONDS)
                except Empty:
                    continue
                _, chunk = at_work.pop(str(future.key))
                if future.status == "finished":
                    for number, (seconds, result) in zip(chunk, future.result(), strict=True):
                        yield number, seconds, result
                elif future.status != "error":  # Dask gives up all when the scheduler is gone
                    raise UserError(
                        f"the scheduler {client.scheduler.address} is gone: what is finished stays, and the same command goes on",
                        "scheduler.gone",
                    )
                elif not isinstance(error := future.exception(), KilledWorker):
                    raise error
                elif len(chunk) > 1:
                    again += [[number] for number in reversed(chunk)]
                else:
                    name = work.name(items[chunk[0]])
                    words = f"{name}: {TRIES} workers died of it, of memory perhaps: {work.smaller}"
                    yield chunk[0], 0.0, Result(failed=[words], finished=False)

    def _client(self, stack: ExitStack) -> tuple[Any, Callable[[], object]]:
        """The client of the scheduler that is named or started, to be closed by `stack`, and what starts the workers that are missing."""
        import dask
        from distributed import Client, LocalCluster

        settings = {
            "distributed.scheduler.allowed-failures": TRIES - 1,
            "distributed.scheduler.worker-saturation": 1.0,  # what waits for a worker that dies did not kill it
            "distributed.nanny.pre-spawn-environ": ENVIRONMENT,
            # A network does not spill.
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False,
        }
        stack.enter_context(dask.config.set(settings))
        for name in filter(lambda name: name.split(".")[0] == "distributed", list(logging.root.manager.loggerDict)):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # the command says what happens
        if self.scheduler is not None:
            try:
                return stack.enter_context(Client(self.scheduler, timeout=CONNECT, set_as_default=False)), lambda: None
            except (OSError, ValueError) as error:
                raise UserError(
                    f"--scheduler {self.scheduler}: no scheduler answers there ({one_line(error, 100)})",
                    "scheduler.none",
                ) from error
        if self.cluster is not None:
            started: Any = self._jobs()
        else:
            started = LocalCluster(
                n_workers=self.workers,
                threads_per_worker=1,
                memory_limit=psutil.virtual_memory().total // (self.workers or 1),
                dashboard_address="127.0.0.1:0",  # of a port that is free
                host="127.0.0.1",
                silence_logs=logging.CRITICAL,
            )
        stack.enter_context(started)
        client = stack.enter_context(Client(started, set_as_default=False))
        client.register_plugin(_without_interrupt())
        return client, partial(started.scale, self.workers)

    def _jobs(self) -> Any:
        """The workers of a queueing system: what jobqueue.yaml says of a job counts, and a job is one worker."""
        import dask
        import dask_jobqueue

        assert self.cluster is not None
        asked = {"cores": 1, "memory": MEMORY}
        missing = {
            key: value for key, value in asked.items() if dask.config.get(f"jobqueue.{self.cluster}.{key}") is None
        }
        queue = {} if self.partition is None else {"queue": self.partition}
        try:
            jobs = getattr(dask_jobqueue, CLUSTERS[self.cluster])(processes=1, **missing, **queue)
            jobs.scale(jobs=self.workers)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"--cluster {self.cluster} takes no jobs here: {one_line(error)}", "cluster.refused"
            ) from error
        return jobs


def check_installed(needed: str = "distributed") -> None:
    """Raises MissingExtraError without Dask."""
    if find_spec(needed) is None:
        raise MissingExtraError(
            f"several processes need {needed}, which is not installed: pip install 'gcsa-vit[scale]'", "dask.missing"
        )


def _do(token: str, recipe: Recipe, items: Sequence[Any]) -> list[tuple[float, Result]]:
    """In a worker: what comes of the items."""
    with _one:
        if token not in _works:
            _works.clear()
            _choose_card()
            _works[token] = recipe()
        return list(_works[token].results(items, Pace()))


def _without_interrupt() -> Any:
    """What lets workers, also those that come later, go on when Ctrl-C goes to all processes of a terminal: the command ends them."""
    from distributed import WorkerPlugin

    class WithoutInterrupt(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    return WithoutInterrupt()


def _choose_card() -> None:
    """Of several cards, each worker sees one. Dask has told the libraries to take one thread."""
    from distributed import get_worker

    cards = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
        name.removeprefix("/dev/nvidia") for name in sorted(glob("/dev/nvidia[0-9]*"))
    )
    number = re.search(r"\d+$", str(get_worker().name))
    if cards and number:
        chosen = cards.split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = chosen[int(number[0]) % len(chosen)]
