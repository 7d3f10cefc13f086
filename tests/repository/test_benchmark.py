"""python -m benchmarks: every module that a choice names is there, and wrong choices are named."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks import common
from benchmarks.__main__ import CHOICES, main

ROOT = Path(__file__).parents[2]


def test_every_module_exists() -> None:
    modules = {module for chosen in CHOICES.values() for module in chosen}
    assert {"speed.layers", "speed.models", "scaling.linear", "peers.tax", "speed.startup"} <= modules
    assert all((ROOT / "benchmarks" / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_unknown_choice_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "layer"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert "'layer'" in capsys.readouterr().err


@pytest.mark.parametrize(("timed", "written"), [([], True), ([(0.1, 0.05), (4, 0)], True), ([(2, 2), (2, 0)], False)])
def test_timings_of_a_busy_machine_are_not_written(
    timed: list[tuple[float, float]],
    written: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(common, "timed", timed)
    monkeypatch.setattr(common, "machine_folder", lambda info: "machine")
    if written:
        common.save("name", {"a": 1})
    else:
        with pytest.raises(SystemExit) as exit_:
            common.save("name", {"a": 1})
        assert exit_.value.code == 2
        assert "name.json was not written, for other processes used 0.50 cores" in capsys.readouterr().out
    assert (tmp_path / "machine/name.json").exists() is (written and timed != [])
    assert (tmp_path / "name.json").exists() is (timed == [])
    assert written or list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("info", "folder"),
    [
        (dict(gpu=None, cpu="Intel(R) Xeon(R) Processor", instructions="AVX512"), "intel-xeon-processor-avx512"),
        (dict(gpu="NVIDIA H100 80GB HBM3", cpu="AMD EPYC", instructions="AVX2"), "nvidia-h100-80gb-hbm3"),
    ],
)
def test_folder_of_a_machine(info: dict[str, str | None], folder: str) -> None:
    assert common.machine_folder(info) == folder


def test_timing_notes_what_others_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(100.0, 7.0), (110.0, 12.0)])
    monkeypatch.setattr(common, "clock", lambda: next(readings))
    monkeypatch.setattr(common, "timed", [])
    common.alternate({"nothing": lambda: None}, 1)
    assert common.timed == [(10, 5)]


def test_the_clock_leaves_out_what_this_process_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []
    for own in ((0.0, 0.0, 0.0, 0.0, 0.0), (5.0, 1.0, 1.0, 1.0, 0.0)):
        monkeypatch.setattr(os, "times", lambda own=own: os.times_result(own))
        readings.append(common.clock()[1])
    assert readings[0] - readings[1] == pytest.approx(8, abs=0.9)
