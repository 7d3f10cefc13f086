"""Side-by-side timing: both sides in turn within one run, median and spread, written as JSON with the machine."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gcsa.training.results import git_commit, machine, write_json

RESULTS = Path(__file__).parent / "results"


def alternate(sides: dict[str, Callable[[], object]], repeats: int, warm_up: int = 2) -> dict[str, dict[str, float]]:
    """Times each side `repeats` times, taking turns so that both meet the same load; milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(warm_up + repeats):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            if i >= warm_up:
                times[name].append((time.perf_counter() - start) * 1e3)
    return {
        name: {"median_ms": statistics.median(values), "min_ms": min(values), "max_ms": max(values)}
        for name, values in times.items()
    }


def forward_and_step(modules: dict[str, tuple[nn.Module, Tensor]], repeats: int) -> dict[str, Any]:
    """Evaluation forward and training forward with backward of each module on its input."""

    def forward(module: nn.Module, x: Tensor) -> None:
        with torch.no_grad():
            module.eval()(x)

    def step(module: nn.Module, x: Tensor) -> None:
        module.train().zero_grad()
        module(x).square().mean().backward()

    return {
        mode: alternate({name: (lambda m=m, x=x, run=run: run(m, x)) for name, (m, x) in modules.items()}, repeats)
        for mode, run in {"forward": forward, "forward_backward": step}.items()
    }


def ratios(timings: dict[str, Any], slow: str, fast: str) -> dict[str, float]:
    """How many times faster `fast` is than `slow` in each measured mode."""
    return {mode: sides[slow]["median_ms"] / sides[fast]["median_ms"] for mode, sides in timings.items()}


def resident_peak() -> float:
    """The largest resident size of this process so far, in megabytes (Linux; getrusage's would be the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def arguments(description: str | None) -> argparse.Namespace:
    """Command line of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--repeats", type=int, default=9, help="timed runs of each side")
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    torch.manual_seed(0)
    return parsed


def save(name: str, content: dict[str, Any]) -> None:
    """Writes results/<name>.json with commit and machine, and prints the numbers."""
    RESULTS.mkdir(exist_ok=True)
    for key, value in content.items():
        print(f"{key}: {value}")
    print(write_json(RESULTS / f"{name}.json", {**content, "commit": git_commit(), "machine": machine()}))
