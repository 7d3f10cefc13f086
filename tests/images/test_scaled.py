"""Images that are resampled as they are read."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gcsa.images.windows import ArrayImage, ScaledImage

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
