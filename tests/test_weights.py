"""The trained weights in weights/ open with timm alone and still read turned digits."""

import os
from pathlib import Path

import pytest
import timm
import torch

import gcsa  # noqa: F401  (registers the models)
from gcsa.data import create_datamodule
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
