"""`python -m benchmarks.speed.gpu`, on the CPU, as the machine of a card has it: without most of what gcsa asks for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed import gpu
from gcsa._utils.published import list_models

RUN = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"hydra", "omegaconf", "escnn", "stardist", "tifffile", "imagecodecs", "peft", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["gpu", "--smoke", "--output", sys.argv[1]]
runpy.run_module("benchmarks.speed.gpu", run_name="__main__")
"""


def test_it_measures_one_of_each_kind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    root = Path(__file__).parents[2]
    run = subprocess.run(
        command, cwd=root, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    text = (tmp_path / "gpu.json").read_text()
    content = json.loads(text)
    assert content["errors"] == []
    assert content["cut_off"] is None
    measured = {(row["network"], row["mode"], row["way"]) for row in content["rows"]}
    assert {
        ("gcsa", "forward", "folded"),
        ("timm's ViT", "step", "compiled"),
        ("gcsa_ocr_tiny.print", "forward", "eager"),
        ("gcsa_unet_tiny.nuclei", "forward", "folded"),
    } <= measured
    assert all(row["images_per_s"] > 0 and row["of_rate"] > 0 for row in content["rows"])
    (profile,) = content["profiles"].values()
    assert len(profile) == 15
    # All rows and profiles of a card, as large as these, can be carried back.
    row_bytes = max(len(json.dumps(row, indent=1)) for row in content["rows"]) + 50
    profile_bytes = len(json.dumps(profile, indent=1)) + 1000
    cases = list(gpu.cases())
    profiles = sum(gpu.profiled(case, way) for case in cases for way in ("folded", "compiled"))
    assert 6 * len(cases) * row_bytes + profiles * profile_bytes < 1_000_000


def test_the_most_important_rows_come_first() -> None:
    cases = list(gpu.cases())
    assert len(set(cases)) == len(cases)
    first = [(case.network, case.width, case.mode, case.dtype, case.compiled) for case in cases[:4]]
    assert first == [
        (network, 384, mode, "bfloat16", True) for mode in ("forward", "step") for network in ("gcsa", "timm's ViT")
    ]
    assert {(case.network, case.batch) for case in cases if case.width is None} == {
        (name, batch) for name in list_models() for batch in (1, 64)
    }


def test_a_spent_budget_ends_the_process_with_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    report = gpu.Report(tmp_path, minutes=1)
    report.add("a", {"images_per_s": 1.0, "of_rate": 0.5})
    report.current = "b"
    report.stop()
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert ended == [0]
    assert (len(content["rows"]), content["cut_off"]) == (1, "b")


def test_a_failing_row_is_told(tmp_path: Path) -> None:
    report = gpu.Report(tmp_path, minutes=1)
    try:
        raise MemoryError("out of memory")
    except MemoryError as error:
        report.fail("a", error)
    (failed,) = json.loads((tmp_path / "gpu.json").read_text())["errors"]
    assert failed["row"] == "a"
    assert failed["error"].startswith("MemoryError: out of memory")
