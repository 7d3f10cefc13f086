"""The trained weights in weights/ open with timm alone and still read turned digits."""

import os
from pathlib import Path

import pytest
import timm
import torch

import gcsa  # noqa: F401  (registers the models)
from gcsa.data import create_datamodule
from gcsa.ocr.data.datamodule import LinesDataModule
from gcsa.ocr.load import load_recognizer
from gcsa.ocr.measure import measure
from gcsa.testing import assert_invariant

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("GCSA_DATA", ROOT / ".." / "shared" / "data"))


def test_rotated_mnist_weights() -> None:
    if not (DATA / "rotated_mnist").is_dir():
        pytest.skip("needs rotated MNIST under GCSA_DATA")
    model = timm.create_model(f"local-dir:{ROOT / 'weights' / 'gcsa_tiny.rotmnist'}", pretrained=True).eval()
    data = create_datamodule("rotmnist", root=str(DATA), batch_size=500)
    data.setup("validate")
    images, labels = next(iter(data.val_dataloader()))
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    assert accuracy >= 0.98
    assert_invariant(model, images[:4], model.group)


@pytest.mark.parametrize(
    ("adapter", "script", "most"),
    [(None, "fr17_roman_print", 0.05), ("gcsa_ocr_tiny.fr17.la09", "la09_12_caroline_manuscript", 0.28)],
)
def test_recogniser_and_adapters_read_validation_lines(adapter: str | None, script: str, most: float) -> None:
    if not (DATA / "ocr_lines" / script).is_dir():
        pytest.skip(f"needs ocr_lines/{script} under GCSA_DATA")
    weights = ROOT / "weights"
    model = load_recognizer(weights / "gcsa_ocr_tiny.fr17", adapter and weights / adapter)
    data = LinesDataModule(root=DATA, script=script, charset=model.charset, limit_train=16)
    data.setup("validate")
    found = measure(model, list(data.val_dataloader())[::8])
    assert found["cer"] < most
    assert found["same_when_turned"] == 1.0
    assert found["turn_found"] > 0.9
