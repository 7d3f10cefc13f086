"""Works through a list of training runs, two side by side if asked; what is finished is not run again.

    python -m benchmarks.learning.queue pcam_trials --jobs 2

A list is a YAML file in this folder: `folder`, below docs/results/, for the results; `common`, overrides of all runs; and
`runs`, a name for each with its own overrides. A run is `python train.py` with these overrides in
outputs/queue/FOLDER/NAME, from where a run that was stopped is resumed. Its result is results.json and the curve of every
validation: accuracy and loss, and AUROC where there are two classes.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from gcsa.training.results import git_commit, write_json

ROOT = Path(__file__).parents[2]


def read_list(name: str) -> dict[str, Any]:
    """The list `name`. Raises FileNotFoundError, which names those that there are."""
    path = Path(__file__).with_name(f"{name}.yaml")
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise FileNotFoundError(f"no list {name!r}: choose one of {known}")
    return yaml.safe_load(path.read_text())


def curve(folder: Path) -> dict[str, list[float]]:
    """What each validation gave, by metric, from the CSV logger's files, one for each time that the run was resumed."""
    by_epoch: dict[int, dict[str, float]] = {}
    for path in sorted(folder.glob("csv/version_*/metrics.csv"), key=lambda path: path.stat().st_mtime):
        for row in csv.DictReader(path.read_text().splitlines()):
            if values := {key: float(text) for key, text in row.items() if key.startswith("val/") and text}:
                by_epoch[int(row["epoch"])] = values
    rows = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    return {key: [round(row[key], 5) for row in rows] for key in (rows[0] if rows else {})}


def run(listed: dict[str, Any], name: str, threads: int) -> str:
    """Trains the run `name`, unless its result is there; returns a line for the screen."""
    result = ROOT / "docs/results" / listed["folder"] / f"{name}.json"
    if result.is_file():
        return f"{name}: done before"
    output = ROOT / "outputs/queue" / listed["folder"] / name
    if not (output / "results.json").is_file():
        overrides = [*listed["common"], *listed["runs"][name], f"threads={threads}"]
        if (output / "checkpoints/last.ckpt").is_file():
            overrides.append("ckpt_path=last")
        output.mkdir(parents=True, exist_ok=True)
        (output / "commit.txt").write_text(str(git_commit()))
        with open(output / "log.txt", "a") as log:
            command = [sys.executable, "train.py", *overrides, f"output_dir='{output}'"]
            ended = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        if ended.returncode != 0:
            return f"{name}: stopped with status {ended.returncode}, see {output / 'log.txt'}"
    content = json.loads((output / "results.json").read_text())
    for key in ("root", "path"):  # where the data lie on this machine
        if content["config"]["data"].get(key):
            content["config"]["data"][key] = Path(content["config"]["data"][key]).name
    content["commit"] = (output / "commit.txt").read_text()  # of the code that ran, whatever is checked out by now
    result.parent.mkdir(parents=True, exist_ok=True)
    write_json(result, {"overrides": listed["runs"][name], **content, "curve": curve(output)})
    return f"{name}: {content['results']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", help="a YAML file in benchmarks/learning, without its ending")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each")
    parsed = parser.parse_args()
    listed = read_list(parsed.list)
    with ThreadPoolExecutor(parsed.jobs) as pool:
        for line in pool.map(lambda name: run(listed, name, parsed.threads), listed["runs"]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
