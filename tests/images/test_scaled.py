"""Images that are resampled as they are read."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gcsa.images.windows import ArrayImage, ScaledImage, resampled

PICTURE = np.random.default_rng(0).integers(0, 256, (37, 50, 3), dtype=np.uint8)


@pytest.mark.parametrize("factor", [0.3, 0.5, 1.0, 1.7, 3.0])
def test_a_window_is_a_part_of_the_whole_resized_by_torch(factor: float) -> None:
    image = ScaledImage(ArrayImage(PICTURE), factor)
    height, width = image.shape
    assert (height, width) == (round(37 * factor), round(50 * factor))
    whole = image.window(0, 0, height, width)
    planes = torch.from_numpy(PICTURE).permute(2, 0, 1)[None].double()
    expected = F.interpolate(planes, size=(height, width), mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    assert np.allclose(whole, expected, atol=1e-3)
    part = image.window(2, 1, height - 1, width // 2)
    assert np.allclose(part, whole[2 : height - 1, 1 : width // 2], atol=1e-4)
    assert image.percentiles(1, 99) == ArrayImage(PICTURE).percentiles(1, 99)


def test_it_commutes_with_reflections() -> None:
    whole = ScaledImage(ArrayImage(PICTURE), 0.6).window(0, 0, 22, 30)
    other = ScaledImage(ArrayImage(PICTURE[::-1, ::-1].copy()), 0.6).window(0, 0, 22, 30)
    assert np.allclose(whole, other[::-1, ::-1], atol=1e-4)
    assert not np.allclose(whole, other, atol=1), "negative control"


def test_means_over_areas() -> None:
    """Pixels one and a half as long: each is the mean of three halves."""
    halves = PICTURE[3:33, 5:50].repeat(2, 0).repeat(2, 1).astype(float)
    expected = halves.reshape(20, 3, 30, 3, 3).mean((1, 3))
    assert np.allclose(resampled(ArrayImage(PICTURE), (3, 5), (1.5, 1.5), (20, 30)), expected, atol=1e-4)
    assert not np.allclose(resampled(ArrayImage(PICTURE), (3, 5.25), (1.5, 1.5), (20, 29)), expected[:, :29], atol=1)
