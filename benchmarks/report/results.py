"""Reads results and lays out tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
"""The repository."""

Run = dict[str, Any]
"""The results.json of a training run."""


def load_runs(folder: str, names: str = "*") -> dict[str, Run]:
    """File name without ending to content, for the JSON files of a folder of benchmarks/results/ that are called like `names`."""
    files = sorted((ROOT / "benchmarks/results" / folder).glob(f"{names}.json"))
    return {path.stem: json.loads(path.read_text()) for path in files}


def load_benchmark(name: str) -> dict[str, Any]:
    """The content of benchmarks/results/NAME.json."""
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())


def sides(size: Sequence[int]) -> str:
    """Such as "3 x 96 x 96"."""
    return " x ".join(map(str, size))


def machine_title(machine: dict[str, Any]) -> str:
    """Such as "Intel Xeon (AVX512), 2 threads"."""
    words = (machine["gpu"] or machine["cpu"]).replace("(R)", "").replace("(TM)", "").replace(" Processor", "")
    instructions = f" ({machine['instructions']})" if "instructions" in machine and not machine["gpu"] else ""
    threads = "" if machine["gpu"] else f", {machine['threads']} thread" + "s" * (machine["threads"] > 1)
    return f"{words}{instructions}{threads}"


def load_timings(name: str, badness: Callable[[dict[str, Any]], Any]) -> dict[str, dict[str, Any]]:
    """Machine to content, for benchmarks/results/MACHINE/NAME.json, the largest `badness` first. Raises ValueError where no
    machine has it, and where one has it twice."""
    contents = [json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks/results").glob(f"*/{name}.json"))]
    if not contents:
        raise ValueError(f"no folder of benchmarks/results has {name}.json: run python -m benchmarks")
    machines = {machine_title(content["machine"]): content for content in sorted(contents, key=badness, reverse=True)}
    if len(machines) < len(contents):
        raise ValueError(f"two folders of benchmarks/results have {name}.json of one machine: remove the older")
    return machines


def measured(name: str) -> dict[str, Any]:
    """What benchmarks/results/NAME.json holds beside commit and machine: an entry for each thing that was measured."""
    return entries(load_benchmark(name))


def entries(content: dict[str, Any]) -> dict[str, Any]:
    """What a result holds beside commit and machine."""
    return {key: row for key, row in content.items() if key not in ("commit", "machine")}


def accuracy(run: Run) -> float:
    """The accuracy on the test set, between 0 and 1."""
    return float(run["results"]["test/accuracy"])


def thousands(count: int) -> str:
    """Such as "97k"."""
    return f"{count / 1e3:,.0f}k"


def budget_cells(run: Run) -> list[str]:
    """Minutes, epochs, seed and commit."""
    epochs = str(run["config"]["trainer"]["max_epochs"])
    return [f"{run['fit_seconds'] / 60:.0f}", epochs, str(run["seed"]), run["commit"][:8]]


BUDGET = ("minutes", "epochs", "seed", "commit")
"""The header of `budget_cells`."""


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
