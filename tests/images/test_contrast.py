"""The contrast of a picture: small in noise of any kind, large where there are objects, and the same in every pose."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from gcsa.images import windows
from gcsa.images.windows import ArrayImage, contrast
from gcsa.tasks.segmentation.predict import LEAST_CONTRAST
from tests.images.test_intensity import POSES

RNG = np.random.default_rng(0)
SHAPE = (160, 140, 3)
NOISE = {
    "normal": RNG.normal(100, 3, SHAPE).round().astype(np.uint8),
    "Poisson": RNG.poisson(2, SHAPE).astype(np.uint8),
    "sparse": RNG.poisson(0.1, SHAPE).astype(np.uint16),
    "uniform": RNG.integers(0, 256, SHAPE).astype(np.uint16),
    "exponential": RNG.exponential(300, SHAPE).round().astype(np.uint16),
    "floats": RNG.laplace(0, 1e-3, SHAPE).astype(np.float32),
    "blank": np.full(SHAPE, 7, np.uint8),
    "blank floats": np.full(SHAPE, 0.1, np.float32),
}
SPOT = np.zeros(SHAPE, bool)
SPOT[20:28, 100:108] = True


@pytest.mark.parametrize("kind", NOISE)
def test_noise_has_little_and_one_small_object_much(kind: str) -> None:
    picture = NOISE[kind]
    least = contrast(ArrayImage(picture))
    assert least < LEAST_CONTRAST if picture.std() else least == 0
    step = 10 * picture.std() or 1
    assert contrast(ArrayImage(np.where(SPOT, picture + np.array(step, picture.dtype), picture))) > 6


@pytest.mark.parametrize("kind", NOISE)
def test_it_is_bit_identical_in_every_pose_and_by_windows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = NOISE[kind]
    upright = contrast(ArrayImage(picture))
    assert {contrast(ArrayImage(pose(picture))) for pose in POSES} == {upright}

    def in_sevens(length: int, *_: int) -> Iterator[tuple[int, int]]:
        return ((start, min(length, start + 7)) for start in range(0, length, 7))

    monkeypatch.setattr(windows, "strips", in_sevens)
    assert contrast(ArrayImage(picture)) == upright
    assert contrast(ArrayImage(picture[:5])) == math.inf
    assert contrast(ArrayImage(picture[:6])) < math.inf


def test_each_channel_counts() -> None:
    picture = np.zeros(SHAPE, np.uint8)
    picture[..., 1] = NOISE["normal"][..., 0]
    assert contrast(ArrayImage(picture)) < 3
    picture[..., 2] = 50 * SPOT[..., 0]
    assert contrast(ArrayImage(picture)) > 6
