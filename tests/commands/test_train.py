"""train.py as a command: what a refused run leaves, and how Hydra is told."""

import os
from pathlib import Path

import pytest

from gcsa.commands import leftovers
from gcsa.commands.composition import conf_folder
from gcsa.commands.leftovers import remember, remove_leftovers

from .conftest import Run

REFUSED = "monitor.mode=most"


@pytest.mark.parametrize("folder", ["run", "several/new/folders", "."])
def test_a_refused_run_leaves_nothing(folder: str, run: Run) -> None:
    code, out, err = run("train", REFUSED, f"output_dir={folder}")
    assert (code, out) == (2, "")
    assert err.startswith("error: monitor.mode must be max for monitor.metric=val/accuracy, got 'most'")
    assert os.listdir() == []


def test_a_folder_of_the_users_stays(run: Run) -> None:
    Path("mine/empty").mkdir(parents=True)
    Path("mine/notes.txt").write_text("notes")
    for folder in ("mine", "mine/empty", "mine/new"):
        assert run("train", REFUSED, f"output_dir={folder}")[0] == 2
    assert sorted(os.listdir("mine")) == ["empty", "notes.txt"]
    assert os.listdir("mine/empty") == []


def test_a_refused_sweep_leaves_nothing(run: Run) -> None:
    code, _, err = run("train", "-m", "seed=0,1", REFUSED, "output_dir=sweep/one")
    assert code == 2
    assert err.startswith("error: monitor.mode must be max for monitor.metric=val/accuracy, got 'most'")
    assert os.listdir() == []


def test_runs_of_a_sweep_before_the_refused_one_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_before", None)
    sweep = tmp_path / "sweep"
    remember(sweep)
    for number in "01":
        (sweep / number).mkdir(parents=True)
        (sweep / number / "train.log").touch()
    (sweep / "multirun.yaml").touch()
    (sweep / "0" / "results.json").touch()
    remove_leftovers(sweep / "0")
    remove_leftovers(sweep / "1")
    assert sorted(os.listdir(sweep)) == ["0", "multirun.yaml"]
    assert sorted(os.listdir(sweep / "0")) == ["results.json", "train.log"]


def test_a_run_of_another_process_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_before", None)
    (tmp_path / "train.log").touch()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["train.log"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--help"], "== Configuration groups =="),
        (["--cfg", "job"], "output_dir: outputs/"),
        (["--cfg", "job", "experiment=rotmnist_tiny"], "name: rotmnist"),
        (["--cfg", "job", "--config-dir", "mine", "experiment=small"], "depth: 7"),
    ],
)
def test_hydra_is_told_where_the_configurations_are(arguments: list[str], shown: str, run: Run) -> None:
    Path("mine/experiment").mkdir(parents=True)
    Path("mine/experiment/small.yaml").write_text("# @package _global_\nmodel:\n  depth: 7\n")
    code, out, err = run("train", *arguments)
    assert code == 0, err
    assert shown in out


def test_conf_is_that_of_the_checkout() -> None:
    assert conf_folder() == Path(__file__).parents[2] / "conf"
