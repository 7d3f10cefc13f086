"""Other precisions than float32: runs train to the end, and class scores stay invariant to what the arithmetic can tell apart."""

import copy
import functools
import json
from pathlib import Path

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from gcsa.actions import act
from gcsa.layers.attention import attend_everywhere, attend_nearby
from gcsa.layers.conv import SteerableConv2d
from gcsa.testing import randomize, relative_error
from tests.runs import composed, train
from tests.two_processes import record

from .test_distributed import SMALL

MODELS = {
    "gcsa_tiny": 28,
    "gcsa_small": 32,
    "gcsa_linear_tiny": 28,
    "gcsa_pyramid_tiny": 64,
    "gcsa_pooled_small": 32,
}
"""Pixels a side of small images for each."""
TOLERANCE = {torch.bfloat16: 4 * 2**-8, torch.float16: 4 * 2**-11}
"""Relative: four steps of the format."""

SHORT = ("data.batch_size=16", "trainer.limit_val_batches=1")
RUN = ("trainer.max_epochs=2", *SHORT, "optimizer=sgd", "callbacks=no_ema")
"""Float16 weights cannot be averaged, and round AdamW's epsilon to 0."""


def invariance_error(model: nn.Module, images: Tensor, dtype: torch.dtype, autocast: bool) -> float:
    """The largest relative change of the logits under quarter turns; asserts that the precision is not float32."""
    weights = torch.float32 if autocast else dtype
    narrow, narrow_images = copy.deepcopy(model).to(weights), images.to(weights)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
        turned = [narrow(act(narrow_images, "c4", g, "image")).float() for g in range(4)]
    assert not torch.equal(turned[0], model(images)), "nothing was rounded"
    return max(relative_error(logits, turned[0]) for logits in turned)


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "weights"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_logits_stay_invariant(name: str, dtype: torch.dtype, autocast: bool) -> None:
    depths = dict(depths=(1, 1, 1, 1)) if "pyramid" in name else dict(depth=2)
    model = randomize(timm.create_model(name, group="c4", in_chans=1, **depths)).eval()
    error = invariance_error(model, torch.randn(2, 1, MODELS[name], MODELS[name]), dtype, autocast)
    assert error < TOLERANCE[dtype]


def test_without_equivariance_they_do_not() -> None:
    """Negative control: the same network on the trivial group."""
    model = randomize(timm.create_model("gcsa_small", group="c1", in_chans=1)).eval()
    assert invariance_error(model, torch.randn(2, 1, 32, 32), torch.bfloat16, True) > 5 * TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_attention_trains_in_float32_under_autocast(dtype: torch.dtype) -> None:
    """While gradients are recorded (ADR 29): then float32 is narrowed, and float64 left alone."""
    q, k, v = (torch.randn(2, 2, 3, 3, 1, 16, dtype=dtype, requires_grad=True) for _ in range(3))
    near = functools.partial(attend_nearby, radius=1, shape="square", circular=False)
    for attend in (attend_everywhere, near):
        expected = attend(q, k, v)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(attend(q, k, v), expected)
            with torch.no_grad():
                assert torch.equal(attend(q, k, v), expected) == (dtype == torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_strided_depthwise_convolutions_are_in_float32_under_autocast(dtype: torch.dtype) -> None:
    """All but the assembly of the filter (ADR 29)."""
    conv = SteerableConv2d(4, 4, 4, "c4", stride=2, depthwise=True).to(dtype)
    image = torch.randn(2, 8, 8, 4, 4, dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        filter, bias = (x.to(wide) for x in conv.assemble(False))
        found = conv(image).flatten(3).permute(0, 3, 1, 2)
    channels = image.to(wide).flatten(3).permute(0, 3, 1, 2)
    assert torch.equal(found, F.conv2d(channels, filter, bias, stride=2, padding=1, groups=16))


@pytest.mark.parametrize(
    "name", ["gcsa_tiny", "gcsa_linear_tiny", "gcsa_pyramid_tiny", "gsa_tiny", "z2sa_tiny", "gcnn_tiny"]
)
def test_parameters_may_be_cast_alone(name: str) -> None:
    """As FSDP's mixed precision and state dicts that are assigned do, which leave the buffers wide."""
    model = timm.create_model(name, in_chans=1, num_classes=10).eval()
    x = torch.randn(2, 1, 32, 32)
    narrow = {key: value.bfloat16() for key, value in model.named_parameters()}
    logits = torch.func.functional_call(model, narrow, x.bfloat16())
    assert logits.dtype == torch.bfloat16
    assert 0 < relative_error(logits.float(), model(x)) < 0.03  # some 0.01 over these models and seeds


@pytest.fixture(scope="module")
def in_float32(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of a run in float32."""
    folder = tmp_path_factory.mktemp("float32")
    return record(composed(folder, *SMALL, *RUN), folder)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-true"])
def test_trains_as_in_float32(tmp_path: Path, in_float32: list[float], precision: str) -> None:
    losses = record(composed(tmp_path, *SMALL, *RUN, f"trainer.precision={precision}"), tmp_path)
    assert losses == pytest.approx(in_float32, abs=0.05)
    assert losses != pytest.approx(in_float32, abs=1e-4), "something was rounded"
    stored = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)
    assert all(torch.isfinite(tensor).all() for tensor in stored["state_dict"].values())


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_other_weights_are_tested_to_the_end(tmp_path: Path, precision: str) -> None:
    """Also where images are fed to them that no trainer converts; half weights are averaged in float32."""
    options = ("trainer.max_epochs=1", "test=true", f"trainer.precision={precision}")
    train(composed(tmp_path, *SMALL, *SHORT, *options), tmp_path)
    assert "test/accuracy" in json.loads((tmp_path / "results.json").read_text())["results"]
    stored = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)
    dtypes = [stored[key]["model.head.fc.weight"].dtype for key in ("current_model_state", "state_dict")]
    assert dtypes == ([torch.float64] * 2 if precision == "64-true" else [torch.bfloat16, torch.float32])
