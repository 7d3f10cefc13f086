"""What `gcsa.batch` itself costs an item, and how far several processes go: `python -m benchmarks.scaling.files loop|workers`.

loop: 100,000 small images through a network that does nothing; CPU seconds and memory. workers: items that sleep, by 1, 2, 4 and 8 processes of
Dask, which need no cores: what is lost is what the loop and Dask cost. Counted from the moment at which all processes are at work.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import tracemalloc
from functools import partial
from pathlib import Path

import psutil

from gcsa import batch
from gcsa.cluster import Dask

IMAGES = 100_000
SECONDS = 1.0
ITEMS = 20
"""For each worker."""


class Nothing(batch.Work[Path]):
    """Reads the size of a file."""

    def one(self, item: Path, pace: batch.Pace) -> batch.Result:
        return batch.Result({"confidence": 1.0, "bytes": item.stat().st_size})


class Sleeping(batch.Work[int]):
    """Takes `SECONDS` an item."""

    def one(self, item: int, pace: batch.Pace) -> batch.Result:
        begun = time.time()
        time.sleep(SECONDS)
        return batch.Result({"process": os.getpid(), "begun": begun, "ended": time.time()})


def loop() -> None:
    """CPU seconds an item, of the list and of the loop; memory at a tenth and at the end, and what a file that is done takes at the start."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number:06}.png") for number in range(IMAGES)]
        for file in files:
            file.write_bytes(b"\x89PNG")
        memory: dict[str, float] = {}
        cpu = [time.process_time()]
        done = 0

        def look(item: Path, result: batch.Result) -> None:
            nonlocal done
            done += 1
            if done in (IMAGES // 10, IMAGES):
                memory[f"after {done} files"] = process.memory_info().rss / 1e6

        ledger, how = Path(folder, "x.ledger"), batch.How(report=str(Path(folder, "report.csv")))
        with batch.Run(files, Nothing(), ledger, how, in_folder=True) as run:
            cpu.append(time.process_time())
            run.do(look)
            cpu.append(time.process_time())
            assert sum(1 for _ in run.results()) == IMAGES
            cpu.append(time.process_time())
        tracemalloc.start()
        with batch.Run(files, Nothing(), ledger, in_folder=True) as run:
            kept, most = tracemalloc.get_traced_memory()
            assert len(run.done) == IMAGES
    steps = zip(("list", "loop and report", "results"), cpu[:-1], cpu[1:], strict=True)
    content = {
        "items": IMAGES,
        "cpu_ms_an_item": {name: 1000 * (after - before) / IMAGES for name, before, after in steps},
        "memory_mb": memory,
        "bytes_a_finished_file": {"while the ledger is read": most / IMAGES, "afterwards": kept / IMAGES},
    }
    from benchmarks.common import CPU, save  # not before, for torch takes memory

    save("scaling/loop", content, CPU)


def workers() -> None:
    """Of each number of processes, the share of the time in which they sleep, from the moment at which all are at work to that at which the
    last item is begun; the seconds until then; and the CPU seconds of the command, which is also the scheduler, for an item."""
    from benchmarks.common import CPU, clock, save  # not by the workers, for torch takes seconds

    rows = []
    for count in (1, 2, 4, 8):
        used: list[tuple[float, float]] = []
        start, before = time.time(), clock()
        engine = Dask(partial(Sleeping), workers=count)
        with batch.Run(range(ITEMS * count), Sleeping(), None, batch.How(engine=engine)) as run:
            run.do(lambda item, result: used.append((time.time(), time.process_time())))  # noqa: B023
            found = [result.values for _, result in run.results()]
        after = clock()
        first: dict[int, float] = {}
        for item in sorted(found, key=lambda item: item["begun"]):
            first.setdefault(item["process"], item["begun"])
        assert len(first) == count
        ready, last = max(first.values()), max(item["begun"] for item in found)
        cpu = [seconds for moment, seconds in used if ready <= moment]
        slept = sum(max(0, min(item["ended"], last) - max(item["begun"], ready)) for item in found)
        rows.append(
            {
                "workers": count,
                "seconds": last - ready,
                "efficiency": slept / (count * (last - ready)),
                "start_seconds": ready - start,
                "cpu_ms_an_item": 1000 * (cpu[-1] - cpu[0]) / (len(cpu) - 1),
                "cores_of_others": (after[1] - before[1]) / (after[0] - before[0]),
            }
        )
        print(rows[-1], flush=True)
    save("scaling/workers", {"seconds_an_item": SECONDS, "rows": rows}, CPU)


if __name__ == "__main__":
    {"loop": loop, "workers": workers}[sys.argv[1]]()
