"""The end of a multirun: what several seeds reached together."""

import json
import math
from pathlib import Path

import pytest

from gcsa.training.seeds import over_seeds


def write(folder: Path, number: int, seed: int, lr: float, accuracy: float) -> None:
    (folder / str(number)).mkdir(parents=True)
    config = {"seed": seed, "output_dir": str(folder), "optimizer": {"lr": lr}, "data": {"name": "digits"}}
    content = {"seed": seed, "config": config, "results": {"val/accuracy": accuracy, "curve": [1], "name": "x"}}
    (folder / str(number) / "results.json").write_text(json.dumps(content))


def test_seeds_of_a_configuration_are_averaged(tmp_path: Path) -> None:
    for number, (seed, lr, accuracy) in enumerate([(1, 0.1, 0.5), (2, 0.1, 0.7), (3, 0.1, 0.6), (1, 0.2, 0.9)]):
        write(tmp_path, number, seed, lr, accuracy)
    (row,) = over_seeds(tmp_path)
    assert (row["of"], row["seeds"]) == ("optimizer.lr=0.1", [1, 2, 3])
    assert row["metrics"].keys() == {"val/accuracy"}
    metric = row["metrics"]["val/accuracy"]
    assert (metric["mean"], metric["deviation"]) == (pytest.approx(0.6), pytest.approx(0.1))
    half = 4.302653 * 0.1 / math.sqrt(3)  # Student's t, two degrees of freedom
    assert metric["interval"] == pytest.approx([0.6 - half, 0.6 + half], abs=1e-6)


def test_one_seed_each_has_no_mean(tmp_path: Path) -> None:
    for number, lr in enumerate((0.1, 0.2, 0.2)):
        write(tmp_path, number, 0, lr, 0.5)
    assert over_seeds(tmp_path) == over_seeds(tmp_path / "nothing") == []
