"""Stains, unmixed from pictures of stained tissue."""

from typing import Any

import numpy as np
import pytest
from skimage.color import rgb2hed, rgb_from_hed

from gcsa.images.choices import STAINS
from gcsa.images.stain import MOST, StainImage
from gcsa.images.windows import ArrayImage
from tests.errors import raises

PICTURE = np.random.default_rng(0).integers(1, 256, (37, 50, 3), dtype=np.uint8)


def amounts(picture: Any, stain: str = "haematoxylin") -> Any:
    """Optical densities of a stain (H, W)."""
    return StainImage(ArrayImage(picture), stain).window(0, 0, *picture.shape[:2])[..., 0] * MOST / 65_535


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(("stain", "column"), [("haematoxylin", 0), ("dab", 2)])
def test_amounts_are_those_of_scikit_image(dtype: Any, stain: str, column: int) -> None:
    picture = PICTURE if dtype == np.uint8 else PICTURE.astype(np.uint16) * 257
    expected = rgb2hed(picture)[..., column] * 6  # in units of log10(1e-6)
    assert (expected > 0.1).mean() > 0.3
    assert np.allclose(amounts(picture, stain), expected.clip(0, MOST), atol=1e-4)


@pytest.mark.parametrize("stain", STAINS)
def test_a_stain_is_told_from_the_others(stain: str) -> None:
    pictures = [np.round(255 * 10**-colour)[None, None].astype(np.uint8) for colour in rgb_from_hed]
    expected = [float(stain == name) for name in ("haematoxylin", "eosin", "dab")]
    assert [float(amounts(one, stain)[0, 0]) for one in pictures] == pytest.approx(expected, abs=0.02)
    assert amounts(np.full((1, 1, 3), 255, np.uint8), stain) == 0


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
