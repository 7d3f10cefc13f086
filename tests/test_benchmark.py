"""benchmark.py: every script that a choice names is there, and wrong choices are named."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_script_exists() -> None:
    module = runpy.run_path(str(ROOT / "benchmark.py"))
    scripts = {script for chosen in module["CHOICES"].values() for script in chosen}
    assert {"layers", "models", "linear", "tax", "startup"} <= scripts
    assert all((module["FOLDER"] / f"{script}.py").is_file() for script in scripts)


def test_unknown_choice_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "layer"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(ROOT / "benchmark.py"), run_name="__main__")
    assert exit_.value.code == 2
    assert "'layer'" in capsys.readouterr().err
