"""Models that give feature maps keep only what these need."""

import pytest
import timm
import torch

from tests.contracts.test_timm import create, every_name, image, shallow


@every_name
def test_every_parameter_of_feature_maps_gets_a_gradient(name: str) -> None:
    """Or distributed training stops at its second step."""
    model = timm.create_model(name, features_only=True, **shallow(name))
    sum(found.sum() for found in model(image(create(name)))).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


def test_a_pruned_pyramid_takes_multiples_of_its_own_stride() -> None:
    model = create("gcsa_pyramid_tiny", features_only=True, out_indices=(0, 1))
    assert [found.shape[-1] for found in model(torch.randn(1, 3, 40, 40))] == [10, 5]
    with pytest.raises(ValueError, match="both sides must be multiples of 8"):
        model(torch.randn(1, 3, 36, 40))
