"""The plain convolutional networks: sizes of image, budgets, timm's head methods, wrong arguments."""

from typing import Any

import pytest
import timm
import torch
from torch import nn

from tests.errors import raises

NAMES = ["alexnet_small", "vgg16_small"]
every_model = pytest.mark.parametrize("name", NAMES)


@pytest.mark.parametrize(("name", "millions", "convolutions"), [("alexnet_small", 2.5, 5), ("vgg16_small", 14.7, 13)])
def test_layers(name: str, millions: float, convolutions: int) -> None:
    model = timm.create_model(name, device="meta")
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == convolutions
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(millions * 1e6, rel=0.02)


@every_model
@pytest.mark.parametrize("size", [28, 32, 96])
def test_image_sizes_and_gradients(name: str, size: int) -> None:
    model = timm.create_model(name, in_chans=1, num_classes=7)
    out = model(torch.randn(2, 1, size, size))
    assert out.shape == (2, 7)
    out.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@every_model
def test_smallest_image(name: str) -> None:
    model = timm.create_model(name).eval()
    side = model.smallest
    model.check_input_size(side, side)
    assert model(torch.zeros(1, 3, side, side)).isfinite().all()
    with pytest.raises(RuntimeError, match="too small"):
        model(torch.zeros(1, 3, side - 1, side))
    with raises("input.too_small"):
        model.check_input_size(side - 1, side)


@every_model
def test_head(name: str) -> None:
    model = timm.create_model(name, device="meta")
    assert {model.default_cfg[key] + ".weight" for key in ("first_conv", "classifier")} <= model.state_dict().keys()
    x = torch.empty(2, 3, 32, 32, device="meta")
    features = model.forward_features(x)
    assert features.shape[1] == model.num_features
    assert model.forward_head(features, pre_logits=True).shape == (2, model.head_hidden_size)
    model.reset_classifier(3)
    assert model(x).shape == (2, model.num_classes) == (2, 3)
    assert model.get_classifier().out_features == 3
    model.reset_classifier(0)
    assert model(x).shape == (2, model.num_features)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (dict(in_chans=0), "in_chans"),
        (dict(num_classes=-1), "num_classes"),
        (dict(global_pool="avg"), "global_pool"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], key: str) -> None:
    with raises(key):
        timm.create_model("alexnet_small", **arguments)
