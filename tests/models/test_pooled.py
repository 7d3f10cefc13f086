"""Blocks on scalar fields: what gcsa_pooled_small has that no other family has."""

from typing import Any

import peft
import pytest
import timm
import torch

from gcsa.actions import act
from gcsa.adapters import lora_config
from gcsa.layers.conv import SteerableConv2d
from gcsa.models.backbone import Backbone
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.testing import assert_equivariant, assert_invariant, randomize, relative_error
from tests.errors import not_equivariant, raises

SMALL: dict[str, Any] = dict(fields=4, scalar_fields=8, depth=1, stem_fields=(4, 4))


def network(group: str = "d4", **options: Any) -> Backbone:
    """With running statistics that are not those it began with."""
    model = randomize(timm.create_model("gcsa_pooled_small", group=group, **{**SMALL, **options})).train()
    model(3 * torch.randn(4, 3, 32, 32) + 1)
    return model.eval()


@pytest.mark.parametrize(
    "options",
    [
        dict(basis="full"),
        dict(positions=True, centred=True, head_fields=4),
        dict(radius=1, padding_mode="circular"),
        dict(attention="linear", num_random_features=8),
    ],
)
@pytest.mark.parametrize("group", ["c4", "d4"])
def test_invariant(group: str, options: dict[str, Any]) -> None:
    """In train and eval mode, float64 and float32."""
    assert_invariant(network(group, **options), torch.randn(2, 3, 32, 32), group)


@pytest.mark.parametrize("name", timm.list_models("gcsa_*", exclude_filters=["gcsa_pyramid_*", "gcsa_hybrid_*"]))
def test_every_size_of_one_resolution_takes_scalar_fields(name: str) -> None:
    """And gcsa_pooled_small goes without."""
    count = 0 if name == "gcsa_pooled_small" else 8
    model = randomize(timm.create_model(name, scalar_fields=count, depth=1, num_heads=4)).eval()
    assert model.feature_kind == ("image" if count else "regular")
    x = torch.randn(1, model.in_chans, 2 * model.size_divisor, 2 * model.size_divisor)
    quarter = model.group.rotations // 4
    features, turned = model.forward_features(x), model.forward_features(act(x, model.group, quarter, "image"))
    assert relative_error(turned, act(features, model.group, quarter, model.feature_kind)) < 1e-5


def test_larger_filters_of_scalar_fields_tell_directions_apart() -> None:
    """Which is why they are refused."""
    model: Any = network()
    model.stages[0].attn.q = SteerableConv2d(8, 8, 3, "c1")
    with not_equivariant():
        assert_equivariant(model, torch.randn(2, 3, 32, 32), "d4", "image", "invariant")


def test_features_are_scalar_maps() -> None:
    model, x = network(), torch.randn(2, 3, 32, 48)
    features = model.forward_features(x)
    assert features.shape == (2, model.num_features, 4, 6) == (2, 8, 4, 6)
    assert model.feature_info[0]["num_chs"] == 8
    assert torch.allclose(model.forward_features(x.rot90(1, (2, 3))), features.rot90(1, (2, 3)), atol=1e-5)


def test_an_adapter_changes_it_and_keeps_it_invariant() -> None:
    model, x = network(), torch.randn(2, 3, 32, 32)
    before = model(x)
    adapted = randomize(peft.get_peft_model(model, lora_config(model, rank=2))).eval()
    assert relative_error(adapted(x), before) > 1e-3
    assert_invariant(adapted, x, "d4")


@pytest.mark.parametrize("size", ["gcsa_pooled_small", "gcsa_tiny"])
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (dict(kernel_size=3), "scalar_fields.needs"),
        (dict(separable=True), "scalar_fields.needs"),
        (dict(kv_stride=2), "scalar_fields.needs"),
        (dict(num_heads=5), "num_heads"),
        (dict(scalar_fields=-1), "scalar_fields"),
    ],
)
def test_bad_arguments(size: str, arguments: dict[str, Any], key: str) -> None:
    with raises(key):
        timm.create_model(size, **{"scalar_fields": 8, **arguments})


def test_a_text_recogniser_needs_regular_fields() -> None:
    for name, options in (("gcsa_ocr_tiny", dict(scalar_fields=8)), ("gcsa_pooled_small", {})):
        with raises("encoder.scalar_fields"):
            CTCRecognizer("ab", name, **options)
