"""train.py as a command: what a refused run leaves, and how Hydra is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import DictConfig

from gcsa._utils.errors import UserError
from gcsa.cli import cleanup
from gcsa.cli.cleanup import remember, remove_leftovers
from gcsa.cli.composition import conf_folder
from tests.runs import TINY

from .conftest import ROOT, Run

REFUSED = "monitor.mode=most"


@pytest.mark.parametrize("folder", ["run", "several/new/folders", "."])
def test_a_refused_run_leaves_nothing(folder: str, run: Run) -> None:
    code, out, err = run("train", REFUSED, f"output_dir={folder}")
    assert (code, out) == (2, "")
    assert err.startswith("error: monitor.mode=most must be max for monitor.metric=val/accuracy")
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
    assert err.startswith("error: monitor.mode=most must be max for monitor.metric=val/accuracy")
    assert os.listdir() == []


def test_a_sweep_goes_on_after_a_run_that_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(task: object, cfg: DictConfig, output_dir: Path) -> float:
        if cfg.seed == 1:
            raise {"data": UserError("the loss is nan"), "fault": KeyError("key")}[cfg.data.name]
        (output_dir / "results.json").touch()
        return 0.5

    monkeypatch.setattr("gcsa.training.run.train", train)
    monkeypatch.setattr("gcsa.training.seeds.Seeds.on_multirun_end", lambda *_, **__: None)
    for name, status, sentence in (
        ("data", 2, "error: the loss is nan\n"),
        ("fault", 1, "error: KeyError: 'key' (unexpected: please report the traceback in "),
    ):
        code, _, err = run("train", "-m", "seed=0,1,2", f"data.name={name}", f"output_dir={name}")
        assert code == status
        assert err.count(sentence) == 2, "as it happens, and at the end"
        assert "Error executing job with overrides: ['seed=1'," in err
        for seed in (0, 2):
            assert Path(name, str(seed), "results.json").is_file()
    assert not Path("data/1").exists()
    assert Path("fault/1/error.log").is_file()


@pytest.mark.filterwarnings("ignore")  # of Optuna and its plugin, which use what others have deprecated
def test_a_search_goes_on_after_a_trial_that_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    rates = iter([UserError("the loss is nan"), 0.25, 0.75])

    def train(*_: object) -> float:
        rate = next(rates)
        if isinstance(rate, Exception):
            raise rate
        return rate

    monkeypatch.setattr("gcsa.training.run.train", train)
    search = ("sweep=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.max_failure_rate=1.0", "output_dir=search")
    code, _, err = run("train", "-m", *search)
    assert code == 0, err
    assert "error: the loss is nan\n" in err
    assert "best_value: 0.75" in Path("search/optimization_results.yaml").read_text()


def test_a_multirun_ends_with_the_mean_over_seeds(run: Run) -> None:
    short = ("trainer.max_epochs=1", "data.limit_train=32", "output_dir=sweep")
    code, out, err = run("train", "-m", *TINY, *short, "seed=1,2")
    assert code == 0, err
    (row,) = json.loads(Path("sweep/seeds.json").read_text())["runs"]
    results = [json.loads(Path("sweep", name, "results.json").read_text())["results"] for name in "01"]
    mean = sum(result["val/accuracy"] for result in results) / 2
    assert row["metrics"]["val/accuracy"]["mean"] == pytest.approx(mean)
    assert "over seeds" in out


def test_help_and_configurations_need_no_torch() -> None:
    script = "import sys, runpy; sys.argv = ['train.py', *sys.argv[1:]]\n"
    script += "try: runpy.run_path('train.py', run_name='__main__')\nexcept SystemExit: pass\n"
    script += "assert not {'torch', 'timm', 'pytorch_lightning'} & sys.modules.keys()"
    for arguments in (["--help"], ["--cfg", "job", "experiment=rotmnist_tiny"]):
        done = subprocess.run([sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_runs_of_a_sweep_before_the_refused_one_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "_before", None)
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
    monkeypatch.setattr(cleanup, "_before", None)
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
