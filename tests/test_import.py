"""Importing gcsa, and predicting, need neither the training stack nor figures, and nothing needs PEFT before there is an adapter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HEAVY = (
    *("pytorch_lightning", "lightning", "lightning_fabric", "hydra", "omegaconf", "matplotlib", "torchmetrics", "h5py"),
    *("escnn", "lie_learn", "sklearn"),
)
PROGRAM = f"""
import runpy, sys
import torch, timm, gcsa

def absent(*names):
    assert not (heavy := sorted(set(sys.modules) & set(names))), heavy

gcsa.load
absent(*{HEAVY})
for name in ("gcsa_tiny.rotmnist", "gcsa_ocr_tiny.fr17", "gcsa_unet_tiny.nuclei"):
    gcsa.load(name)
absent(*{HEAVY})
import gcsa.training, gcsa.evaluation, gcsa.tasks.recognition.trocr
absent("peft")
sys.argv = sys.argv[1:]
runpy.run_module("gcsa", run_name="__main__")
"""


def test_imports_are_light_and_a_command_says_what_it_must(tmp_path: Path) -> None:
    """In a process of its own, which ends as `gcsa transcribe` in another folder: with no progress where nobody watches,
    and no warning of a library."""
    (tmp_path / "bad.png").write_bytes(b"")
    command = ["gcsa", "transcribe", "gcsa_ocr_tiny.fr17", "bad.png", TESTS / "stored/fr17_1.png"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, command)], capture_output=True, encoding="utf-8", cwd=tmp_path
    )
    expected = json.loads((TESTS / "stored/expected.json").read_text(encoding="utf-8"))["gcsa_ocr_tiny.fr17"]
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == ["", expected["fr17_1.png"]["text"]]
    assert done.stderr.startswith("bad.png cannot be read as an image")
    assert done.stderr.endswith("\n1 of 2 could not be read\n")
    assert done.stderr.count("\n") == 2, done.stderr


@pytest.mark.parametrize("first", ["gcsa.layers.layout", "gcsa.symmetry", "gcsa.models.create", "gcsa.testing"])
def test_any_part_can_be_imported_first(first: str) -> None:
    program = f"import {first}, timm; assert timm.is_model('gcsa_tiny')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", cwd=TESTS.parent)
    assert done.returncode == 0, done.stderr


def test_baselines_are_imported_when_they_are_asked_for() -> None:
    program = """
import sys, gcsa, timm

def loaded():
    return {name.rpartition(".")[2] for name in sys.modules if name.startswith("gcsa.models.baselines.")}

assert loaded() == set(), loaded()
assert {"performer_tiny", "vgg16_small", "gsa_tiny"} <= set(timm.list_models())
assert timm.get_pretrained_cfg("vgg16_small").input_size == (3, 32, 32)
model = timm.create_model("performer_tiny", dim=24)
assert loaded() == {"performer", "kernelizable"}, loaded()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", cwd=TESTS.parent)
    assert done.returncode == 0, done.stderr
