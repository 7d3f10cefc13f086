"""What `gcsa.batch` itself costs an item, and how far several processes go: `python -m benchmarks.scaling.files loop|workers`.

loop: 100,000 small images through a network that does nothing; CPU seconds and memory. workers: items that sleep, by 1, 2, 4 and 8 processes of
Dask, which need no cores: what is lost is what the loop and Dask cost.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from gcsa import batch
from gcsa.cluster import Dask

IMAGES = 100_000
SECONDS = 0.5
ITEMS = 20
"""For each worker."""


class Nothing(batch.Work[Path]):
    """Reads the size of a file."""

    def one(self, item: Path, pace: batch.Pace) -> batch.Result:
        return batch.Result({"confidence": 1.0, "bytes": item.stat().st_size})


class Sleeping(batch.Work[int]):
    """Takes `SECONDS` an item."""

    def one(self, item: int, pace: batch.Pace) -> batch.Result:
        time.sleep(SECONDS)
        return batch.Result({"process": os.getpid(), "end": time.time()})


def loop() -> dict[str, Any]:
    """CPU seconds an item, of the list and of the loop, and memory at a tenth and at the end."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number:06}.png") for number in range(IMAGES)]
        for file in files:
            file.write_bytes(b"\x89PNG")
        memory: dict[int, float] = {}
        cpu = [time.process_time()]
        done = 0

        def look(item: Path, result: batch.Result) -> None:
            nonlocal done
            done += 1
            if done in (IMAGES // 10, IMAGES):
                memory[done] = process.memory_info().rss / 1e6

        how = batch.How(report=str(Path(folder, "report.csv")))
        with batch.Run(files, Nothing(), Path(folder, "x.part"), how) as run:
            cpu.append(time.process_time())
            run.do(look)
            cpu.append(time.process_time())
        with batch.Run(files, Nothing(), Path(folder, "y.part")) as run:
            run.do()
            start = time.process_time()
            found = sum(1 for _ in run.results())
            reading = time.process_time() - start
        assert found == IMAGES
    milliseconds = {name: 1000 * (b - a) / IMAGES for name, a, b in (("list", *cpu[:2]), ("loop and report", *cpu[1:]))}
    return {"items": IMAGES, "cpu_ms_an_item": milliseconds | {"results": 1000 * reading / IMAGES}, "memory_mb": memory}


def workers() -> list[dict[str, Any]]:
    """Of each number of processes, the share of the time in which they sleep, from the first result on."""
    rows = []
    for count in (1, 2, 4, 8):
        with batch.Run(
            range(ITEMS * count), Sleeping(), None, batch.How(engine=Dask(partial(Sleeping), workers=count))
        ) as run:
            run.do()
            ends = sorted(result.values["end"] for _, result in run.results())
        span = ends[-1] - ends[count - 1]  # the first round waits for the processes
        rows.append({"workers": count, "seconds": span, "efficiency": (ITEMS - 1) * SECONDS / span})
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    print({"loop": loop, "workers": workers}[sys.argv[1]]())
