"""Haematoxylin, unmixed from pictures of stained tissue."""

from typing import Any

import numpy as np
import pytest
from skimage.color import rgb2hed, rgb_from_hed

from gcsa.images.stain import MOST, StainImage
from gcsa.images.windows import ArrayImage
from tests.errors import raises

PICTURE = np.random.default_rng(0).integers(1, 256, (37, 50, 3), dtype=np.uint8)


def amounts(picture: Any) -> Any:
    """Optical densities of haematoxylin (H, W)."""
    return StainImage(ArrayImage(picture)).window(0, 0, *picture.shape[:2])[..., 0] * MOST / 65_535


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_amounts_are_those_of_scikit_image(dtype: Any) -> None:
    picture = PICTURE if dtype == np.uint8 else PICTURE.astype(np.uint16) * 257
    expected = rgb2hed(picture)[..., 0] * 6  # in units of log10(1e-6)
    assert (expected > 0.1).mean() > 0.3
    assert np.allclose(amounts(picture), expected.clip(0, MOST), atol=1e-4)


def test_haematoxylin_is_told_from_eosin() -> None:
    stains = [np.round(255 * 10 ** -rgb_from_hed[i])[None, None].astype(np.uint8) for i in range(2)]
    haematoxylin, eosin = (float(amounts(one)[0, 0]) for one in stains)
    assert haematoxylin == pytest.approx(1, abs=0.02)
    assert eosin == pytest.approx(0, abs=0.02)
    assert amounts(np.full((1, 1, 3), 255, np.uint8)) == 0


def test_a_window_of_a_rotated_picture_is_the_rotated_window_to_the_last_bit() -> None:
    whole, rotated = StainImage(ArrayImage(PICTURE)), StainImage(ArrayImage(np.rot90(PICTURE)))
    expected = np.rot90(whole.window(0, 0, 37, 50))
    assert expected.dtype == np.uint16
    assert np.array_equal(rotated.window(3, 5, 20, 30), expected[3:20, 5:30])
    assert whole.percentiles(1, 99.8) == rotated.percentiles(1, 99.8) == ArrayImage(expected).percentiles(1, 99.8)


@pytest.mark.parametrize(
    "picture",
    [PICTURE.astype(np.float32), PICTURE[..., :1], np.repeat(PICTURE[..., :1], 3, 2)],
    ids=["float", "one channel", "grey"],
)
def test_what_has_no_stain(picture: Any) -> None:
    with raises("stain.image"):
        StainImage(ArrayImage(picture))
