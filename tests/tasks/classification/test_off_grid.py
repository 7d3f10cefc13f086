"""The changes of `off_grid`, against exact ones, and what moves by them."""

import pytest
import torch

from gcsa.tasks.classification.off_grid import families, jpeg, moved, off_grid, resampled


def test_resampling_is_exact_where_the_grid_is() -> None:
    images = torch.rand(2, 3, 9, 9)
    torch.testing.assert_close(resampled(images, degrees=90), images.rot90(1, (2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(resampled(images, x=1)[..., :-1], images[..., 1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(resampled(images, y=2)[..., :-2, :], images[..., 2:, :], atol=1e-5, rtol=0)


def test_magnification_of_an_oblong_image_keeps_angles() -> None:
    """A line at 45 degrees stays at 45 degrees, also in an image twice as wide as high."""
    y, x = torch.meshgrid(torch.arange(32) - 15.5, torch.arange(64) - 31.5, indexing="ij")
    wave = torch.sin((x + y) / 2)[None, None]
    turned = resampled(wave, degrees=45)[0, 0, 10:22, 26:38]  # now along one axis
    assert min(turned.std(0).max(), turned.std(1).max()) < 0.1 < turned.std()


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_every_change_keeps_shape_and_range(channels: int) -> None:
    images = torch.rand(2, channels, 16, 16)
    found = families(channels, steps=8)
    assert ("stain" in found, "jpeg" in found) == (channels == 3, channels in (1, 3))
    for members in found.values():
        for change in members.values():
            changed = change(images)
            assert changed.shape == images.shape
            assert 0 <= changed.min() <= changed.max() <= 1 + 1e-6
    if channels != 2:
        smooth = torch.full((1, channels, 16, 16), 0.5)
        torch.testing.assert_close(jpeg(smooth, 80), smooth, atol=0.01, rtol=0)


def test_what_moves() -> None:
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert moved(scores.flip(0), scores, "classifier") == 1
    assert moved(2 * scores, scores, "embedding") == 0
    assert moved(scores.flip(0), scores, "embedding") == 1


def test_a_network_of_brightness_moves_with_light_alone() -> None:
    """Its answer is whether an image is brighter than 0.5, and a third of the images are at 0.48."""
    images = torch.full((6, 3, 16, 16), 0.2)
    images[:2] = 0.48
    mean, std = [0.3, 0.3, 0.3], [0.5, 0.5, 0.5]
    found = off_grid(
        lambda x: torch.stack([x.mean((1, 2, 3)), x.new_full((len(x),), 0.4)], 1),
        ((images - 0.3) / 0.5).split(4),
        mean,
        std,
        "classifier",
        steps=8,
    )
    assert found["brightness"] == {"0.9 x": 0.0, "1.1 x": pytest.approx(1 / 3)}
    assert {share for family in ("exact", "angle", "shift", "blur") for share in found[family].values()} == {0.0}
