"""A folded model is the same function, and plain torch."""

import copy
import io
from typing import Any

import pytest
import torch
from peft import get_peft_model
from timm.layers import LayerScale
from torch import nn

from gcsa.adapters import lora_config
from gcsa.layers.conv import SteerableConv2d
from gcsa.models.folding import FoldedConv2d, fold
from gcsa.testing import assert_invariant, equivariance_error, randomize
from tests.errors import raises
from tests.export.small import SMALL, create, images, recognizer


def steerable(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, SteerableConv2d)]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_folded_model_is_the_same_function(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model = create(name).to(dtype)
    before = copy.deepcopy(model.state_dict())
    folded = fold(model)
    x = images().to(dtype)
    assert torch.allclose(folded(x), model(x), rtol=0, atol=tolerance)
    assert steerable(folded) == []
    assert list(model.state_dict()) == list(before)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        (dict(kernel_size=5, lift=True), (2, 3, 6, 6)),
        (dict(kernel_size=4, stride=2), (2, 6, 6, 4, 3)),
        (dict(kernel_size=3, depthwise=True, bias=False), (2, 6, 6, 4, 3)),
        (dict(kernel_size=3, padding_mode="circular"), (2, 6, 6, 4, 3)),
        (dict(kernel_size=1), (2, 6, 6, 4, 3)),
    ],
)
def test_folded_layer_is_the_same_function(arguments: dict[str, Any], shape: tuple[int, ...]) -> None:
    conv = randomize(SteerableConv2d(3, 3, group="c4", dtype=torch.float64, **arguments))
    x = torch.randn(shape, dtype=torch.float64)
    assert torch.allclose(fold(conv)(x), conv(x), rtol=0, atol=1e-12)


def test_folded_layer_refuses_sizes_that_are_not_exact() -> None:
    conv = fold(SteerableConv2d(3, 3, 4, "c4", stride=2))
    with raises("input.size"):
        conv(torch.randn(1, 5, 5, 4, 3))


def test_folded_recognizer_reads_the_same() -> None:
    model = recognizer()
    folded = fold(model)
    x = torch.rand(2, 1, 8, 32)
    assert steerable(folded) == []
    assert torch.allclose(folded(x), model(x), atol=1e-5)
    assert folded.read(x, "any")[0].text == model.read(x, "any")[0].text


def test_folded_model_is_pickled_copied_and_loaded() -> None:
    folded, x = fold(create("gcsa_tiny")), images()
    buffer = io.BytesIO()
    torch.save(folded, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), folded(x))
    other = fold(create("gcsa_tiny"))
    nn.init.zeros_(other.stem.convs[0].weight)
    other.load_state_dict(folded.state_dict())
    assert torch.equal(other(x), folded(x))


def test_folding_twice_is_folding_once() -> None:
    once = fold(create("gcsa_tiny"))
    twice = fold(once)
    x = images()
    assert torch.equal(twice(x), once(x))
    assert twice is not once


def test_folded_model_keeps_the_methods_of_timm() -> None:
    model = create("gcsa_tiny")
    folded, x = fold(model), images()
    assert torch.allclose(folded.forward_features(x), model.forward_features(x), atol=1e-5)
    assert torch.allclose(folded.forward_intermediates(x)[0], model.forward_intermediates(x)[0], atol=1e-5)
    cfg = folded.default_cfg
    assert {cfg["first_conv"] + ".weight", cfg["classifier"] + ".weight"} <= folded.state_dict().keys()
    folded.set_grad_checkpointing()
    folded.reset_classifier(5)
    out = folded.train()(x)
    assert out.shape == (2, 5)
    out.sum().backward()
    assert all(p.grad is not None for p in folded.parameters())


def test_training_leaves_equivariance() -> None:
    """A negative control: a folded model is equivariant by its weights only."""
    conv = SteerableConv2d(2, 2, 3, "c4", dtype=torch.float64)
    folded = fold(conv)
    assert isinstance(folded, FoldedConv2d)
    x = torch.randn(2, 5, 5, 4, 2, dtype=torch.float64)
    assert equivariance_error(folded, x, "c4", 1) < 1e-12
    with torch.no_grad():
        folded.weight.add_(torch.randn_like(folded.weight))
    assert equivariance_error(folded, x, "c4", 1) > 0.1


def test_frozen_weights_and_modes_are_kept() -> None:
    model = create("gcsa_tiny").requires_grad_(False)
    model.head.train()
    folded = fold(model)
    assert not any(p.requires_grad for p in folded.parameters())
    assert [m.training for m in folded.modules()] == [m.training for m in model.modules()]


def test_adapter_must_be_merged_first() -> None:
    model = create("gcsa_tiny")
    adapted = get_peft_model(model, lora_config(model, rank=1))
    for wrapped in (adapted, adapted.get_base_model()):
        with raises("folding.adapter"):
            fold(wrapped)
    merged = adapted.merge_and_unload()
    x = images()
    assert torch.allclose(fold(merged)(x), merged(x), atol=1e-5)


@pytest.mark.parametrize("separable", [False, True])
def test_norms_and_scales_become_part_of_the_convolutions(separable: bool) -> None:
    """In eval mode the function is the same, and the folded convolutions are still equivariant."""
    stem = dict(stem_norm="batch", stem_separable=separable, stem_strides=[1, 2, 1], img_size=16)
    model = randomize(create("gcsa_tiny", layer_scale=0.1, **stem)).double().eval()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.normal_(generator=torch.Generator().manual_seed(0))
            norm.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1))
    folded = fold(model)
    x = images(2).double()
    assert torch.allclose(folded(x), model(x), rtol=0, atol=1e-10)
    left = [module for module in folded.modules() if isinstance(module, nn.BatchNorm2d | LayerScale)]
    assert left == []
    assert_invariant(folded, x, "c4")
