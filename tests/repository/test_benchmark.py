"""benchmark.py: every module that a choice names is there, and wrong choices are named."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_module_exists() -> None:
    program = runpy.run_path(str(ROOT / "benchmark.py"))
    modules = {module for chosen in program["CHOICES"].values() for module in chosen}
    assert {"speed.layers", "speed.models", "scaling.linear", "peers.tax", "speed.startup"} <= modules
    assert all((ROOT / "benchmarks" / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_unknown_choice_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "layer"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(ROOT / "benchmark.py"), run_name="__main__")
    assert exit_.value.code == 2
    assert "'layer'" in capsys.readouterr().err
