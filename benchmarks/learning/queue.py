"""Works through lists of training runs, several side by side if asked; what is finished is not run again.

    python -m benchmarks.learning.queue pcam_systems plankton_systems --jobs 2

A list is a YAML file in this folder: `folder`, below benchmarks/results/, for the results; `seeds`; `common`, overrides of all
runs; `runs`, a name for each with its own overrides; and `once`, the names of those that run with the first seed alone. The
lowest seed of all runs comes before the next of any. A run is `python train.py` with these overrides in
outputs/queue/FOLDER/seedN/NAME, from where a run that was stopped is resumed. Its result, FOLDER/seedN/NAME.json, is
results.json, the commit of every start, and the curve: the training loss and each validation metric by epoch. Behind each run
stands how many are left, and how long those take that ran with another seed; `--left` names them and trains none.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from glob import escape
from pathlib import Path
from statistics import mean

import yaml

from gcsa._utils.atomic import write_json
from gcsa.training.results import git_commit

ROOT = Path(__file__).parents[2]
LISTS = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}


@dataclass(frozen=True)
class Listed:
    """One training run of a list."""

    folder: str
    name: str
    overrides: tuple[str, ...]

    @property
    def seed(self) -> int:
        return int(self.folder.rpartition("seed")[2])

    @property
    def output(self) -> Path:
        """Where it trains."""
        return ROOT / "outputs/queue" / self.folder / self.name

    @property
    def result(self) -> Path:
        """What is kept."""
        return ROOT / "benchmarks/results" / self.folder / f"{self.name}.json"


def read_list(path: Path) -> Iterator[Listed]:
    """The runs of the list at `path`, the most worth knowing first."""
    content = yaml.safe_load(path.read_text())
    once = content.get("once", [])
    if unknown := set(once) - set(content["runs"]):
        raise ValueError(f"{path}: once names {sorted(unknown)}, which are not among its runs")
    for seed in content["seeds"]:
        for name, overrides in content["runs"].items():
            if name in once and seed != content["seeds"][0]:
                continue
            yield Listed(f"{content['folder']}/seed{seed}", name, (*content["common"], *overrides, f"seed={seed}"))


def curve(output: Path, validated: bool = True) -> dict[str, list[float]]:
    """Training loss and metrics of each epoch with a validation, from the CSV logger's files, one for each start; the loss
    of each epoch alone where the run is not `validated`, for it was trained on the validation images too."""
    epochs: dict[int, dict[str, float]] = defaultdict(dict)
    for path in sorted(output.glob("csv/version_*/metrics.csv"), key=lambda path: int(path.parent.name.split("_")[1])):
        for row in csv.DictReader(path.read_text().splitlines()):
            for key, text in row.items():
                if text and (key == "train/loss" or key.startswith("val/")):
                    epochs[int(row["epoch"])][key] = round(float(text), 5)
    if not validated:
        return {"train/loss": [epochs[epoch]["train/loss"] for epoch in sorted(epochs)]}
    keys = sorted({key for row in epochs.values() for key in row})
    # A run that was killed after a validation never wrote the loss of that epoch.
    rows = [row for _, row in sorted(epochs.items()) if len(row) == len(keys)]
    return {key: [row[key] for row in rows] for key in keys}


def train(run: Listed, threads: int) -> int:
    """Starts or resumes the run; returns the exit status."""
    command = [sys.executable, "train.py", *run.overrides, f"threads={threads}", f"output_dir='{run.output}'"]
    if (run.output / "checkpoints/last.ckpt").is_file():
        command.append("ckpt_path=last")
    run.output.mkdir(parents=True, exist_ok=True)
    with open(run.output / "commits.txt", "a") as commits:
        commits.write(f"{git_commit()}\n")  # of this code; results.json has what is checked out when the run ends
    with open(run.output / "log.txt", "a") as log:
        return subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode


def collect(run: Listed) -> str:
    """Keeps the result of a finished run; returns a line for the screen."""
    content = json.loads((run.output / "results.json").read_text())
    for key in ("root", "path"):  # where the data lie on this machine
        if content["config"]["data"].get(key):
            content["config"]["data"][key] = Path(content["config"]["data"][key]).name
    trained_on = content["config"]["data"].get("train_on_val", False)
    content["commit"] = " ".join(dict.fromkeys((run.output / "commits.txt").read_text().split()))
    run.result.parent.mkdir(parents=True, exist_ok=True)
    write_json(run.result, {"overrides": run.overrides, **content, "curve": curve(run.output, not trained_on)})
    return f"{run.folder}/{run.name}: {content['results']}"


def work(run: Listed, threads: int) -> str:
    """Trains `run` and keeps its result, unless that was done before; returns a line for the screen."""
    if run.result.is_file():
        return f"{run.folder}/{run.name}: done before"
    if not (run.output / "results.json").is_file() and (status := train(run, threads)):
        return f"{run.folder}/{run.name}: stopped with status {status}, see {run.output / 'log.txt'}"
    return collect(run)


def left(runs: Sequence[Listed]) -> str:
    """How many of the runs have no result, and how long those of them take that have one with another seed."""
    waiting = [run for run in runs if not run.result.is_file()]
    known = [seconds for run in waiting if (seconds := expected_seconds(run)) is not None]
    time = f", {len(known)} of them {timedelta(seconds=round(sum(known)))} as with other seeds" if known else ""
    return f"{len(waiting)} of {len(runs)} runs left{time}"


def expected_seconds(run: Listed) -> float | None:
    """How long the run took with other seeds, on average; None where there are none."""
    others = run.result.parents[1].glob(f"seed*/{escape(run.result.name)}")
    seconds = [json.loads(path.read_text())["fit_seconds"] for path in others]
    return mean(seconds) if seconds else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="+", choices=LISTS, metavar="list", help=", ".join(LISTS))
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each")
    parser.add_argument("--left", action="store_true", help="train nothing, and name the runs that are left")
    parsed = parser.parse_args()
    runs = sorted((run for name in parsed.lists for run in read_list(LISTS[name])), key=lambda run: run.seed)
    if parsed.left:
        for run in runs:
            if not run.result.is_file():
                print(f"{run.folder}/{run.name}")
        print(left(runs))
        return
    with ThreadPoolExecutor(parsed.jobs) as pool:
        for line in pool.map(lambda run: work(run, parsed.threads), runs):
            print(f"{line} · {left(runs)}", flush=True)
    if not all(run.result.is_file() for run in runs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
