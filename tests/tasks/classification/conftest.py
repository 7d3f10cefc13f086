"""A model as train.py leaves it: a checkpoint and a folder of weights."""

from pathlib import Path

import pytest
import timm
import torch
from timm.models import save_for_hf

import gcsa  # noqa: F401  (registers gcsa_* with timm)

MODEL = {"name": "gcsa_tiny_c4", "depth": 1, "fields": 4, "drop_path_rate": 0.0, "kernel_size": None}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with best.ckpt and weights/, for 10 classes of 1 x 28 x 28 images."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(1)
    model = timm.create_model(MODEL["name"], num_classes=10, in_chans=1, **{k: MODEL[k] for k in ("depth", "fields")})
    state = {f"model.{key}": value for key, value in model.state_dict().items()} | {"metrics.seen": torch.zeros(1)}
    options = {"task": "classification", "model": MODEL, "num_classes": 10, "in_chans": 1, "label_smoothing": 0.1}
    torch.save({"state_dict": state, "hyper_parameters": options}, folder / "best.ckpt")
    save_for_hf(model, str(folder / "weights"), safe_serialization=True)
    return folder
