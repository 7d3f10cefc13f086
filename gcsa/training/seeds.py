"""What several seeds reached together: mean, standard deviation and interval, at the end of `train.py -m seed=1,2,3`."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from scipy.stats import t as student

from gcsa._utils.atomic import write_json
from gcsa._utils.nested import flatten

OWN = ("seed", "output_dir")
"""What differs between the runs of one configuration."""
FILE = "seeds.json"


class Seeds(Callback):
    """Hydra's callback; conf/train.yaml names it. Any launcher will do, since the runs' own results are read."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        if rows := over_seeds(folder):
            Console().print(_table(rows))
            print(write_json(folder / FILE, {"runs": rows}))


def over_seeds(folder: Path) -> list[dict[str, Any]]:
    """Of each configuration in `folder`/*/results.json that ran with two seeds or more: what sets it apart from the others,
    its seeds, and for each metric mean, standard deviation and the 95 % interval of the mean (Student's t)."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*/results.json"))]
    flat = [flatten(run["config"]) for run in runs]
    varied = sorted(
        key
        for key in {key for config in flat for key in config}
        if key not in OWN and len({json.dumps(config.get(key)) for config in flat}) > 1
    )
    groups: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)  # a seed that ran twice counts once
    for run, config in zip(runs, flat, strict=True):
        groups[", ".join(f"{key}={config.get(key)}" for key in varied)][run["seed"]] = run
    return [
        {"of": name, "seeds": [*members], "metrics": _metrics([*members.values()])}
        for name, members in groups.items()
        if len(members) > 1
    ]


def _metrics(runs: list[dict[str, Any]]) -> dict[str, dict[str, float | list[float]]]:
    found: dict[str, dict[str, float | list[float]]] = {}
    for name, first in runs[0]["results"].items():
        values = [run["results"].get(name) for run in runs]
        if isinstance(first, bool) or not all(isinstance(value, int | float) for value in values):
            continue
        mean = math.fsum(values) / len(values)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
        half = float(student.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
        found[name] = {"mean": mean, "deviation": deviation, "interval": [mean - half, mean + half]}
    return found


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("runs", "seeds", "metric", "mean", "deviation", "95 %", title="over seeds")
    for row in rows:
        for name, metric in row["metrics"].items():
            low, high = metric["interval"]
            seeds = ", ".join(map(str, row["seeds"]))
            numbers = f"{metric['mean']:.4g}", f"{metric['deviation']:.2g}", f"{low:.4g} to {high:.4g}"
            table.add_row(row["of"], seeds, name, *numbers)
    return table
