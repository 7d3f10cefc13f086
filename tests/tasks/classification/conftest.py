"""A model as train.py leaves it: a checkpoint and a folder of weights."""

from pathlib import Path

import pytest
import timm
import torch

from gcsa.weights import save_classifier
from tests.cli.conftest import run as run  # the fixture

MODEL = {"name": "gcsa_tiny", "group": "c4", "depth": 1, "fields": 4, "drop_path_rate": 0.0, "kernel_size": None}
PREPROCESSING = {"input_size": [1, 28, 28], "mean": [0.157], "std": [0.277], "label_names": list("0123456789")}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with best.ckpt and weights/, for the digits."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(1)
    options = {key: MODEL[key] for key in ("group", "depth", "fields")}
    model = timm.create_model(MODEL["name"], num_classes=10, in_chans=1, **options)
    state = {f"model.{key}": value for key, value in model.state_dict().items()} | {"metrics.seen": torch.zeros(1)}
    hyper = {"task": "classification", "model": MODEL, "num_classes": 10, "in_chans": 1, "preprocessing": PREPROCESSING}
    torch.save({"state_dict": state, "hyper_parameters": hyper}, folder / "best.ckpt")
    save_classifier(model, folder / "weights", **PREPROCESSING)
    return folder
