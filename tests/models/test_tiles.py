"""Large images: tiles that overlap by the receptive field give the features of the whole (README, Speed)."""

import pytest
import timm
import torch

import gcsa  # noqa: F401  (registers the models)
from gcsa.testing import randomize

STRIDE, MARGIN = 4, 32  # pixels, MARGIN beyond the receptive field of two blocks of radius 1


@pytest.mark.parametrize(("options", "same"), [(dict(radius=1), True), (dict(), False)])
def test_tiles_with_a_margin_are_the_whole(options: dict[str, int], same: bool) -> None:
    """With a neighbourhood; attention everywhere, the negative control, sees a tile at a time."""
    model = timm.create_model(
        "gcsa_tiny", group="c4", fields=4, depth=2, num_heads=1, kernel_size=3, in_chans=1, **options
    )
    model = randomize(model.double().eval())
    image = torch.randn(1, 1, 128, 96, dtype=torch.float64)
    whole = model.forward_features(image)
    tile = model.forward_features(image[:, :, 16:128, 4:92])
    inner = MARGIN // STRIDE
    expected = whole[:, :, 16 // STRIDE + inner : 128 // STRIDE - inner, 4 // STRIDE + inner : 92 // STRIDE - inner]
    found = tile[:, :, inner:-inner, inner:-inner]
    assert found.shape == expected.shape
    assert found.numel() > 0
    assert torch.allclose(found, expected, atol=1e-10) == same
