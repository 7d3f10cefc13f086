"""The work of `gcsa.batch` in several processes, on this machine or on a cluster, by Dask: the one place that imports it.

Each worker process has one thread, makes its own `Work`, with the network, once, and gets chunks of items. The process of the command alone
writes down what came of them, so that nothing is lost with a worker. A chunk whose worker dies is done again, up to `TRIES` times; then its items
are done one by one, and what still ends its worker is reported. Whoever reads an item reads it from the same path: machines share their files.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from glob import glob
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

import psutil

from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.batch import Pace, Result, Work, attempt

Recipe = Callable[[], Work[Any]]
TRIES = 4
"""Workers that may die of a chunk, or of an item by itself, before it is reported."""
CONNECT = "30s"
"""For how long a scheduler is waited for."""
START = "60s"
"""Within which a worker is there, or there again after it died, on a busy machine too: then another one is asked for, and this one ended."""
MEMORY = "8 GB"
"""Of a job, where jobqueue.yaml does not say it."""
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
class Task:
    """What a worker does at a time: the items of these numbers, or of the one a part, as `Work.part` has it."""

    chunk: Sequence[int]
    part: tuple[int, int] | None = None


@dataclass
class Dask:
    """An `Engine`.

    Attributes:
        recipe: makes the work in a worker.
        workers: how many there are, or how many jobs of `cluster`; None for those that a scheduler has.
        scheduler: the address of one that is there, such as tcp://node:8786.
        cluster: such as "slurm": a queueing system of dask-jobqueue, whose jobs are workers.
        partition: the queue of the jobs.
        client: Dask's, once started.
    """

    recipe: Recipe
    workers: int | None = None
    scheduler: str | None = None
    cluster: str | None = None
    partition: str | None = None
    client: Any = field(default=None, init=False)

    def spread(
        self, work: Work[Any], items: Sequence[Any], chunks: Iterable[Sequence[int]], pace: Pace
    ) -> Generator[tuple[int, float, Result], None, None]:
        """As `Engine` says. Raises UserError where there is no scheduler, or no longer."""
        from distributed import Future

        token, waiting, again = uuid4().hex, map(Task, chunks), list[Task]()
        at_work, ended = dict[str, tuple[Future, Task]](), SimpleQueue[Future]()
        divided: dict[int, list[float | None]] = {}  # the seconds of the parts of an item that have ended
        with ExitStack() as stack:
            if self.client is None:
                self.start(stack)
            client = self.client
            looked, slots = 0.0, 1

            def begin() -> None:
                while pace.stop is None and len(at_work) < slots:
                    if (task := again.pop() if again else next(waiting, None)) is None:
                        return
                    idle = max(slots, self.workers or 0) // max(1, pace.total - pace.number)
                    most = 1 if task.part is not None or task.chunk[0] in divided else idle
                    given = [items[number] for number in task.chunk]
                    future = client.submit(_do, token, self.recipe, given, task.part, most, pure=False)
                    at_work[str(future.key)] = future, task
                    future.add_done_callback(ended.put)

            begin()
            if at_work and self.scheduler is None and self.cluster is None:
                with suppress(asyncio.TimeoutError):  # those that are there begin
                    client.wait_for_workers(self.workers, timeout=START)
            while True:
                if time.monotonic() - looked > COUNT_SECONDS and client.status == "running":
                    with suppress(OSError):
                        looked, there = time.monotonic(), len(client.nthreads())
                        slots = max(1, there)
                        if there < (self.workers or 0):  # whoever should start a worker again may have given up
                            client.cluster.scale(self.workers)
                begin()
                if not at_work:
                    return
                first = work.name(items[next(iter(at_work.values()))[1].chunk[0]])
                pace.show(first if len(at_work) == 1 else f"{first} and {len(at_work) - 1} others")
                try:
                    future = ended.get(timeout=LOOK_SECONDS)
                except Empty:
                    continue
                _, task = at_work.pop(str(future.key))
                found, number = _found(future, client), task.chunk[0]  # before its worker begins what may kill it
                begin()
                if task.part is not None:
                    divided[number].append(found)
                    if len(divided[number]) == task.part[1]:
                        again.append(Task(task.chunk))  # which does what a worker that died left
                elif isinstance(found, int):
                    divided[number] = []
                    again += [Task(task.chunk, (part, found)) for part in reversed(range(found))]
                elif found is not None:
                    for number, (seconds, result) in zip(task.chunk, found, strict=True):
                        yield number, round(seconds + sum(filter(None, divided.get(number, ()))), 3), result
                elif len(task.chunk) > 1:
                    again += [Task([one]) for one in reversed(task.chunk)]
                else:
                    words = f"{work.name(items[number])}: {TRIES} workers died of it, of memory perhaps: {work.smaller}"
                    yield number, 0.0, Result(failed=[words], finished=False)

    def start(self, stack: ExitStack) -> None:
        """Begins to start the workers, or finds the scheduler, until `stack` closes. Workers of this machine import while the command does
        (gcsa.worker). Raises UserError where there is no scheduler, or the cluster takes no jobs."""
        import dask
        from distributed import Client, LocalCluster  # before `set`: its defaults would be added to what is set

        settings = {
            "distributed.scheduler.allowed-failures": TRIES - 1,
            "distributed.scheduler.worker-saturation": 1.0,  # what waits for a worker that dies did not kill it
            "distributed.deploy.lost-worker-timeout": START,
            "distributed.nanny.pre-spawn-environ": ENVIRONMENT,
            # What nobody looks at, and what nothing is gained by, of items that are independent: it takes as much CPU as the rest.
            "distributed.admin.tick.interval": "1s",
            "distributed.worker.profile.enabled": False,
            "distributed.scheduler.work-stealing": False,
            "distributed.scheduler.active-memory-manager.start": False,
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
                self.client = stack.enter_context(Client(self.scheduler, timeout=CONNECT, set_as_default=False))
            except (OSError, ValueError) as error:
                raise UserError(
                    f"--scheduler {self.scheduler}: no scheduler answers there ({one_line(error, 100)})",
                    "scheduler.none",
                ) from error
            return
        if self.cluster is not None:
            started: Any = stack.enter_context(self._jobs())
        else:
            stack.enter_context(dask.config.set({"distributed.worker.preload": ["gcsa.worker"]}))
            started = LocalCluster(
                n_workers=0,  # it would wait for them
                threads_per_worker=1,
                memory_limit=psutil.virtual_memory().total // (self.workers or 1),
                dashboard_address="127.0.0.1:0",  # of a port that is free
                host="127.0.0.1",
                silence_logs=logging.CRITICAL,
            )
            stack.enter_context(started).scale(self.workers)
        self.client = stack.enter_context(Client(started, set_as_default=False))

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
            jobs = getattr(dask_jobqueue, f"{self.cluster.upper()}Cluster")(processes=1, **missing, **queue)
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


def _found(future: Any, client: Any) -> Any:
    """What `_do` gave; None where its workers died. Raises UserError where the scheduler is gone, and what `_do` raised."""
    from distributed import KilledWorker

    if future.status == "finished":
        return future.result()
    if future.status != "error":  # Dask gives up all
        raise UserError(
            f"the scheduler {client.scheduler.address} is gone: what is finished stays, and the same command goes on",
            "scheduler.gone",
        )
    if isinstance(error := future.exception(), KilledWorker):
        return None
    raise error


def _do(token: str, recipe: Recipe, items: Sequence[Any], part: tuple[int, int] | None, most: int) -> Any:
    """In a worker: the seconds and results of the items; of a part of one the seconds; of one that at most so many workers should share the
    number of its parts."""
    with _one:
        if token not in _works:
            _works.clear()
            _choose_card()
            _works[token] = recipe()
        work = _works[token]
        if part is not None:
            started = time.monotonic()
            attempt(work.part, items[0], *part)  # the item itself meets the error again
            return time.monotonic() - started
        if most > 1 and len(items) == 1:
            parts = attempt(work.parts, items[0], most)
            if isinstance(parts, int) and parts > 1:
                return parts
        return list(work.results(items, Pace()))


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
