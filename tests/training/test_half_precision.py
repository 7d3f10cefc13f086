"""Half precision: runs train, and class scores stay invariant to what the arithmetic can tell apart."""

import copy
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from gcsa.testing import act, randomize, relative_error
from gcsa.training import run

from .conftest import composed
from .test_distributed import SMALL

MODELS = {
    "gcsa_tiny": 28,
    "gcsa_small": 32,
    "gcsa_linear_tiny": 28,
    "gcsa_pyramid_tiny": 64,
}
"""Pixels a side of small images for each."""
TOLERANCE = {torch.bfloat16: 0.04, torch.float16: 0.005}
"""Relative: ten steps of the format, 2^-8 and 2^-11, through all layers."""


def invariance_error(model: nn.Module, images: Tensor, dtype: torch.dtype, autocast: bool) -> float:
    """The largest relative change of the logits under quarter turns."""
    weights = torch.float32 if autocast else dtype
    model, images = copy.deepcopy(model).to(weights), images.to(weights)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
        turned = [model(act(images, "c4", g, "image")).float() for g in range(4)]
    return max(relative_error(logits, turned[0]) for logits in turned)


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "weights"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_logits_stay_invariant(name: str, dtype: torch.dtype, autocast: bool) -> None:
    model = randomize(timm.create_model(name, group="c4", in_chans=1)).eval()
    error = invariance_error(model, torch.randn(2, 1, MODELS[name], MODELS[name]), dtype, autocast)
    assert 0 < error < TOLERANCE[dtype]


def test_without_equivariance_they_do_not() -> None:
    """Negative control: the same network on the trivial group."""
    model = randomize(timm.create_model("gcsa_tiny", group="c1", in_chans=1)).eval()
    assert invariance_error(model, torch.randn(2, 1, 28, 28), torch.bfloat16, True) > 2 * TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true"])
def test_trains(tmp_path: Path, precision: str) -> None:
    """The loss falls; float16 weights need another epsilon than AdamW's, which they round to 0."""
    eps = ["+optimizer.eps=1e-4"] if precision == "16-true" else []
    score = run.train(
        composed(tmp_path, *SMALL, "trainer.max_epochs=4", f"trainer.precision={precision}", *eps), tmp_path
    )
    assert score > 0.1
