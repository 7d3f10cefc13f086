"""The command line, end to end on the digits."""

import json
import os
import runpy
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from gcsa.evaluation.rotations import ANGLES, Curve
from gcsa.tasks.classification.evaluate import evaluate

ROOT = Path(__file__).parents[3]
FIGURES = {"rotation", "shifts", "calibration", "attention", "mistakes"}


def test_end_to_end(trained, tmp_path):
    options = ("threads=1", "limit=50", "curve_images=4", f"output_dir={tmp_path}/out", "label=mine")
    line = [sys.executable, "evaluate.py", f"model={trained}/best.ckpt", "data=digits", "data.batch_size=32", *options]
    environment = os.environ | {"COLUMNS": "100"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "mine on digits, test split" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"evaluation.json", *(f"{figure}.png" for figure in FIGURES)}
    results = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert results["trained"]
    assert results["scores"]["images"] == 50
    wrong = 50 - round(50 * results["scores"]["accuracy"])
    assert len(results["mistakes"]) == min(wrong, 12) > 0
    assert len(results["rotation"]["accuracy"]) == 48
    assert results["rotation"]["logit_change"][12] < 1e-5 < results["rotation"]["logit_change"][3]
    assert max(results["invariance"].values()) < 1e-5
    assert results["config"]["data"]["batch_size"] == 32
    assert {"cpu", "torch"} <= set(results["machine"])


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs evaluate.py in this process: its exit code, and what it printed."""

    def run_with(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *map(str, arguments)])
        code = 0
        try:
            runpy.run_path(str(ROOT / "evaluate.py"), run_name="__main__")
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    yield run_with
    # What evaluate.py registers with Hydra would hide conf/ from the tests of train.py.
    for name in ("evaluate.yaml", "data"):
        ConfigStore.instance().repo.pop(name, None)


def test_a_plain_network_beside_an_earlier_evaluation(run, tmp_path):
    earlier = {"label": "mine", "rotation": asdict(Curve(ANGLES, (0.5,) * 48, (0.0,) * 48, 4))}
    (tmp_path / "evaluation.json").write_text(json.dumps(earlier))
    options = ("limit=20", "curve_images=2", f"overlay=[{tmp_path}]", f"output_dir={tmp_path}/out")
    code, output, errors = run("model=resnet10t", *options)
    assert code == 0, errors
    assert "untrained: random" in output
    assert "attention maps: not available" in output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "evaluation.json",
        *(f"{figure}.png" for figure in FIGURES - {"attention"}),
    }
    assert not json.loads((tmp_path / "out" / "evaluation.json").read_text())["trained"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=resnet10t", "data=nothing"], "unknown data 'nothing': choose one of cifar10, digits"),
        (["model=resnet10t", "output_dir=/dev/null/out"], "/dev/null/out"),
        (["model=resnet10t", "modle=resnet18"], "unknown key 'modle'"),
        (["model=resnet10000"], "unknown model 'resnet10000'"),
        (["model=gcsa_small", "data=digits"], "28 x 28"),
        ([], "no model given"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run, arguments, message, tmp_path):
    code, _, errors = run(f"output_dir={tmp_path}", *arguments)
    assert code == 2
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "???"}, "no model given: set model="),
        ({"split": "dev"}, "unknown split 'dev': choose one of test, val, train"),
        ({"limit": 0}, "limit=0"),
        ({"curve_images": None}, "curve_images="),
        ({"copies": 0}, "copies=0"),
        ({"threads": 1.5}, "threads="),
        ({"seed": True}, "seed=true"),
        ({"device": "tpu"}, "unknown device 'tpu': choose auto, cpu or cuda"),
        ({"overlay": ["nowhere"]}, "there is no nowhere/evaluation.json to overlay"),
        ({"data": {"name": "digits", "batch_size": 0}}, "batch_size=0"),
    ],
)
def test_values_are_checked_before_anything_is_read(change, message, tmp_path, monkeypatch):
    monkeypatch.setattr("gcsa.tasks.classification.data.digits.Digits.setup", lambda *_: pytest.fail("data were read"))
    config = OmegaConf.load(ROOT / "conf" / "evaluate.yaml")
    del config["defaults"], config["hydra"], config["output_dir"]
    whole = OmegaConf.to_container(config) | {"model": "resnet10t", "data": {"name": "digits"}} | change
    with pytest.raises((ValueError, FileNotFoundError), match=message.replace("?", r"\?")):
        evaluate(whole, tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_curves_of_one_name_are_refused(run, tmp_path):
    earlier = {"label": "resnet10t", "rotation": asdict(Curve(ANGLES, (0.5,) * 48, (0.0,) * 48, 4))}
    (tmp_path / "evaluation.json").write_text(json.dumps(earlier))
    code, _, errors = run("model=resnet10t", "limit=20", f"overlay=[{tmp_path}]", f"output_dir={tmp_path}/out")
    assert code == 2
    assert "two curves of one figure are called resnet10t: set another label=" in errors
    assert not (tmp_path / "out").exists()


def test_a_damaged_overlay_is_refused(tmp_path):
    (tmp_path / "evaluation.json").write_text('{"label": "x", "rotation": {}}')
    config = {
        "model": "resnet10t",
        "split": "val",
        "limit": 1,
        "curve_images": 1,
        "copies": 1,
        "threads": None,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=r"evaluation\.json is damaged"):
        evaluate(config | {"device": "cpu", "overlay": [str(tmp_path)]}, tmp_path)
