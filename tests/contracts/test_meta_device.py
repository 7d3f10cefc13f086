"""Models built on the meta device, or on memory that holds anything: what no state dict holds is filled all the same."""

import copy
from typing import Any

import pytest
import timm
import torch
from timm.models._manipulate import reinit_non_persistent_buffers
from torch import nn

from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.network import SEGMENTERS

from .test_timm import KINDS, shallow


def create(name: str, **options: Any) -> nn.Module:
    return timm.create_model(name, **options).eval()


@pytest.mark.parametrize("name", [*KINDS, "performer_tiny", "linformer_tiny", "alexnet_small"])
def test_from_the_meta_device(name: str) -> None:
    """What `to_empty` leaves in tables that no state dict holds is filled with the weights, and by timm's own hook."""
    source = create(name, **shallow(name))
    x = torch.randn(1, *source.default_cfg["input_size"]) if "tiny" in name else torch.randn(1, source.in_chans, 64, 64)
    expected = source(x)
    model = copy.deepcopy(source).to("meta").to_empty(device="cpu")
    for buffer in model.buffers():
        buffer.fill_(float("nan") if buffer.is_floating_point() else 0)
    model.load_state_dict(source.state_dict())
    assert torch.equal(model(x), expected)
    assigned = copy.deepcopy(source).to("meta")
    assigned.load_state_dict(source.state_dict(), assign=True)
    assert torch.allclose(assigned(x), expected, atol=1e-5)
    for name, buffer in model.named_buffers():
        if name not in source.state_dict():
            buffer.fill_(float("nan"))
    reinit_non_persistent_buffers(model)
    assert torch.equal(model(x), expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap knows no fused attention
@pytest.mark.parametrize("name", KINDS)
def test_an_ensemble_and_weights_from_nothing(name: str) -> None:
    """torch.func's documented ensemble calls a model on the meta device; `init_weights` fills such a model."""
    models = [create(name, **shallow(name)) for _ in range(2)]
    size = models[0].default_cfg["input_size"] if "tiny" in name else (models[0].in_chans, 64, 64)
    x = torch.randn(1, *size)
    with torch.device("meta"):
        base = create(name, **shallow(name))
    stacked = torch.func.stack_module_state(models)
    with torch.no_grad():
        outputs = torch.vmap(lambda state: torch.func.functional_call(base, state, (x,)))(stacked)
        for output, model in zip(outputs, models, strict=True):
            assert torch.allclose(output, model(x), atol=1e-4)
    base.to_empty(device="cpu")
    for tensor in (*base.parameters(), *base.buffers()):
        tensor.detach().fill_(float("nan") if tensor.is_floating_point() else 0)
    base.init_weights()
    fresh, made = dict(base.named_parameters()), dict(models[0].named_parameters())
    assert all(
        (fresh[key].std() - made[key].std()).abs() <= 0.3 * made[key].std() + 0.3
        for key in made
        if made[key].numel() > 1
    )
    assert base(x).isfinite().all()


@pytest.mark.parametrize("name", SEGMENTERS)
def test_segmenters_from_the_meta_device(name: str) -> None:
    """Made there, as weights are read, or moved there and back: what no state dict holds is filled with the weights."""
    options: dict[str, Any] = {} if name.startswith("smp") else dict(depths=(1, 1, 1))
    source = Segmenter(name, rays=8, **options).eval()
    x = torch.randn(1, 3, source.min_size, source.min_size)
    with torch.device("meta"):
        made = Segmenter(name, rays=8, **options).eval()
    assert {tensor.device.type for tensor in (*made.parameters(), *made.buffers())} == {"meta"}
    for model in (made, copy.deepcopy(source).to("meta")):
        model.to_empty(device="cpu")
        for buffer in model.buffers():
            buffer.fill_(float("nan") if buffer.is_floating_point() else 0)
        model.load_state_dict(source.state_dict())
        assert torch.equal(model(x), source(x))
