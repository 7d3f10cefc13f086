"""Side-by-side timing: both sides in turn within one run, median and spread, written as JSON with the machine.

On a GPU where there is one, else on the CPU. Timings stand in a folder of their machine, and are not written where other
processes kept it busy.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from gcsa._utils.atomic import write_json
from gcsa._utils.memory import keep_freed_memory
from gcsa.training.results import git_commit, machine

RESULTS = Path(__file__).parent / "results"
CPU = torch.device("cpu")
DEVICE = torch.device("cuda") if torch.cuda.is_available() else CPU
MOST_OTHERS = 0.1
"""Cores that other processes may use, on average, while a benchmark runs."""


def clock() -> tuple[float, float]:
    """Seconds since some moment, and those that other processes have computed, on all cores, since another (Linux).

    What a hypervisor takes for other guests is not counted: nobody here could stop it.
    """
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle = ticks[3] + ticks[4]
    own = os.times()
    all_processes = (sum(ticks[:7]) - idle) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), all_processes - own.user - own.system - own.children_user - own.children_system


timed: list[tuple[float, float]] = []
"""How long each group of timings took, and what other processes computed meanwhile, in seconds."""


@contextmanager
def timing() -> Iterator[None]:
    """Notes in `timed` how long its body takes, and what other processes compute meanwhile."""
    began, before = clock()
    yield
    now, after = clock()
    timed.append((now - began, after - before))


def options_of(assignments: Sequence[str]) -> dict[str, Any]:
    """The options in "key=value" of a command line, their values read as YAML."""
    return {key: yaml.safe_load(value) for key, _, value in (one.partition("=") for one in assignments)}


def milliseconds(run: Callable[[], object]) -> float:
    """How long `run` takes, on a GPU by its own events."""
    if DEVICE.type == "cpu":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    run()
    after.record()
    after.synchronize()
    return before.elapsed_time(after)


def alternate(sides: dict[str, Callable[[], object]], repeats: int, warm_up: int = 2) -> dict[str, dict[str, float]]:
    """Times each side `repeats` times, taking turns so that both meet the same load; milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    with timing():
        for i in range(warm_up + repeats):
            for name, run in sides.items():
                time_taken = milliseconds(run)
                if i >= warm_up:
                    times[name].append(time_taken)
    return {
        name: {"median_ms": statistics.median(values), "min_ms": min(values), "max_ms": max(values)}
        for name, values in times.items()
    }


def forward_and_step(
    modules: dict[str, tuple[nn.Module, Tensor]], repeats: int, modes: Sequence[str] = ("forward", "forward_backward")
) -> dict[str, Any]:
    """Evaluation forward and training forward with backward of each module on its input."""

    def forward(module: nn.Module, x: Tensor) -> None:
        with torch.no_grad():
            module.eval()(x)

    def step(module: nn.Module, x: Tensor) -> None:
        module.train().zero_grad()
        module(x).square().mean().backward()

    modules = {name: (module.to(DEVICE), x.to(DEVICE)) for name, (module, x) in modules.items()}
    return {
        mode: alternate({name: (lambda m=m, x=x, run=run: run(m, x)) for name, (m, x) in modules.items()}, repeats)
        for mode, run in {"forward": forward, "forward_backward": step}.items()
        if mode in modes
    }


def ratios(timings: dict[str, Any], slow: str, fast: str) -> dict[str, float]:
    """How many times faster `fast` is than `slow` in each measured mode."""
    return {mode: sides[slow]["median_ms"] / sides[fast]["median_ms"] for mode, sides in timings.items()}


def resident_peak() -> float:
    """The largest resident size of this process so far, in megabytes (Linux; getrusage's would be the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def step_megabytes(build: Callable[[], tuple[nn.Module, Tensor]], training: bool, threads: int) -> float:
    """Growth of the largest memory in one pass, with backward where `training`; run it by `alone`."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    module, x = build()
    module, x = module.train(training).to(DEVICE), x.to(DEVICE)
    before = resident_peak() if DEVICE.type == "cpu" else torch.cuda.memory_allocated() / 2**20
    with torch.set_grad_enabled(training):
        out = module(x)
    if training:
        out.square().mean().backward()
    return (resident_peak() if DEVICE.type == "cpu" else torch.cuda.max_memory_allocated() / 2**20) - before


def alone(function: Callable[..., Any], *args: Any) -> Any:
    """What `function` gives in a fresh process, whose peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, args)


def machine_rates(size: int = 1024, megabytes: int = 256) -> dict[str, float]:
    """What this machine reaches: products of float32 matrices in GFLOP/s, by the faster of the libraries behind
    `matmul` and `conv2d`; and copies in GB/s, read and written."""
    positions = 32 * 14 * 14
    rows = torch.randn(positions, size, device=DEVICE)
    matrix = torch.randn(size, size, device=DEVICE)
    image = rows.view(32, 14, 14, size).permute(0, 3, 1, 2)
    source = torch.randn(megabytes * 2**18, device=DEVICE)
    target = torch.empty_like(source)
    sides = {
        "matmul": lambda: rows @ matrix,
        "conv2d": lambda: F.conv2d(image, matrix[:, :, None, None]),
        "copy": lambda: target.copy_(source),
    }
    times = {name: side["median_ms"] for name, side in alternate(sides, 9).items()}
    return {
        "matmul_gflops": 2 * positions * size**2 / min(times["matmul"], times["conv2d"]) / 1e6,
        "copy_gb_per_s": 2 * source.nbytes / times["copy"] / 1e6,
    }


def arguments(
    description: str | None, add: Callable[[argparse.ArgumentParser], object] = lambda parser: None
) -> argparse.Namespace:
    """Command line of every benchmark, with what `add` adds to it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--repeats", type=int, default=9, help="timed runs of each side")
    add(parser)
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    torch.manual_seed(0)
    keep_freed_memory()
    return parsed


def machine_folder(info: dict[str, Any]) -> str:
    """Such as "intel-xeon-processor-avx512": the GPU, or the processor and the widest instructions that torch uses."""
    name = info["gpu"] or f"{info['cpu']} {info['instructions']}"
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", name.lower())).strip("-")


def keep(file: Path | None, content: dict[str, Any]) -> None:
    """Writes what was measured, with commit and machine; nothing without a file."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        print(write_json(file, {**content, "commit": git_commit(), "machine": machine()}))


def save(name: str, content: dict[str, Any], device: torch.device = DEVICE) -> None:
    """Prints the numbers and writes them to results/<name>.json, or, where something was timed, to
    results/<machine>/<name>.json, with commit and machine. Ends with status 2, and writes nothing, where other processes
    used more than `MOST_OTHERS` cores meanwhile. `device` is that which computed."""
    info = machine() if device.type != "cpu" else {**machine(), "gpu": None}
    folder = RESULTS / machine_folder(info) if timed else RESULTS
    for key, value in content.items():
        print(f"{key}: {value}")
    others = sum(seconds for _, seconds in timed) / max(sum(wall for wall, _ in timed), 1)
    if others > MOST_OTHERS:
        print(f"{name}.json was not written, for other processes used {others:.2f} cores: stop them, and run again")
        raise SystemExit(2)
    file = folder / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    print(write_json(file, {**content, "commit": git_commit(), "machine": info}))
