"""New classifiers and poolings, of all families: device, precision, maps without classes, and what is saved."""

from pathlib import Path

import pytest
import timm
import torch

from gcsa.weights import save_classifier
from tests.contracts.test_timm import shallow
from tests.errors import raises


@pytest.mark.parametrize(
    "name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcnn_tiny", "gsa_tiny", "performer_tiny", "vgg16_small"]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_new_classifier_is_as_the_model(name: str, dtype: torch.dtype) -> None:
    model = timm.create_model(name, **shallow(name)).to(dtype)
    model.reset_classifier(5)
    model.eval()
    x = torch.randn(1, model.in_chans, 64, 64, dtype=dtype)
    assert model(x).shape == (1, 5)
    assert model(x).dtype == dtype
    with torch.device("meta"):
        model.to("meta").reset_classifier(3)
    assert model.get_classifier().weight.is_meta


@pytest.mark.parametrize(
    "name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcnn_tiny", "gsa_tiny", "performer_tiny", "alexnet_small"]
)
def test_an_unpooled_map_has_no_classes(name: str) -> None:
    """As in timm, whose create_classifier asserts it."""
    with raises("global_pool.classes"):
        timm.create_model(name, num_classes=4, global_pool="")
    model = timm.create_model(name, num_classes=6).eval()
    with raises("global_pool.classes"):
        model.reset_classifier(4, "")
    assert model.num_classes == model.get_classifier().out_features == 6
    x = torch.randn(1, model.in_chans, 64, 64)
    assert model(x).shape == (1, 6)
    model.reset_classifier(0, "")
    assert torch.equal(model(x), model.forward_features(x))
    with raises("global_pool.classes"):
        model.reset_classifier(4)


@pytest.mark.parametrize("name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcnn_tiny", "gsa_tiny"])
def test_a_new_pooling_is_saved(name: str, tmp_path: Path) -> None:
    """Also of a model in channels-last memory, which safetensors does not take."""
    model = timm.create_model(name, num_classes=3, **shallow(name)).to(memory_format=torch.channels_last).eval()
    model.reset_classifier(5, "avg")
    save_classifier(model, tmp_path / "weights", input_size=(model.in_chans, 64, 64))
    loaded = timm.create_model(f"local-dir:{tmp_path / 'weights'}", pretrained=True).eval()
    x = torch.randn(1, model.in_chans, 64, 64)
    assert torch.allclose(loaded(x), model(x), atol=1e-5)
    assert not all(parameter.is_contiguous() for parameter in model.parameters())
