"""The scale of a picture is that of its values, however it is rotated or reflected."""

import numpy as np
import pytest

from gcsa.images.intensity import normalize, percentiles

RNG = np.random.default_rng(0)
POSES = [lambda a, k=k, m=m: np.rot90(a[:, ::-1] if m else a, k) for k in range(4) for m in (False, True)]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_percentiles_are_bit_identical_in_every_pose(dtype: type, channels: int) -> None:
    values = RNG.gamma(2, 20, (61, 47, channels))
    picture = (values if dtype == np.float32 else values.clip(0, 255)).astype(dtype)
    scale = percentiles(picture)
    flat = np.sort(picture, axis=None)
    assert scale == (flat[round(0.01 * (flat.size - 1))], flat[round(0.998 * (flat.size - 1))])
    upright = normalize(picture, *scale)
    assert upright.dtype == np.float32
    assert np.allclose(np.percentile(upright, [1, 99.8]), [0, 1], atol=0.03)
    for pose in POSES:
        moved = pose(picture)
        assert percentiles(moved) == scale
        assert percentiles(np.ascontiguousarray(moved)) == scale
        assert np.array_equal(normalize(moved, *scale), pose(upright.transpose(1, 2, 0)).transpose(2, 0, 1))


def test_hue_is_kept_and_nothing_clipped() -> None:
    picture = np.zeros((10, 10, 3), np.uint8)
    picture[..., 0], picture[..., 1] = 200, 100
    low, high = percentiles(picture, 0, 100)
    assert (low, high) == (0, 200)
    assert normalize(picture, low, high)[:, 0, 0].tolist() == [1, 0.5, 0]
    assert normalize(picture, 50, 100)[:, 0, 0].tolist() == [3, 1, -1]


def test_constant_and_almost_constant_pictures() -> None:
    for dtype in (np.uint8, np.uint16, np.float32):
        picture = np.full((32, 32, 1), 7, dtype)
        assert not normalize(picture, *percentiles(picture)).any()
        picture[3, 4] = 107  # a tenth of a percent
        assert percentiles(picture) == (7, 107)


def test_every_level_is_kept_apart() -> None:
    """All 65536 levels stay different, which 8 bits would not keep."""
    picture = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    assert len(np.unique(normalize(picture, *percentiles(picture)))) == 65536
