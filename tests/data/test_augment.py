import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch.nn import functional

from gcsa.data.augment import PADDING_MODES, Augmentation, RandomAffine, RandomBlur, gaussian_blur
from gcsa.data.loaders import seeded_generator
from tests.errors import raises


def images(batch: int = 16, size: int = 12) -> torch.Tensor:
    return torch.rand(batch, 2, size, size, generator=seeded_generator(1))


def test_depends_on_the_generator_only() -> None:
    augment = RandomAffine(degrees=180, translate=2, scale=(0.9, 1.1), flip=True, elastic=1)
    x = images()
    torch.manual_seed(0)
    first = augment(x, seeded_generator(3))
    torch.manual_seed(1)
    assert torch.equal(first, augment(x, seeded_generator(3)))
    assert not torch.equal(first, augment(x, seeded_generator(4)))
    assert first.shape == x.shape
    assert not torch.equal(first, x)


def test_global_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    RandomAffine(degrees=10, elastic=1, flip=True, quarter_turns=True)(images(), seeded_generator(0))
    assert torch.equal(torch.rand(1), expected)


def test_every_image_has_its_own_map() -> None:
    out = RandomAffine(degrees=180)(images(1).expand(8, -1, -1, -1), seeded_generator(0))
    assert all(not torch.equal(out[0], other) for other in out[1:])


def test_nothing_changes_by_default() -> None:
    assert torch.equal(RandomAffine()(images(), seeded_generator(0)), images())


def test_quarter_turns_and_flips_are_exact() -> None:
    x = images(64)
    out = RandomAffine(quarter_turns=True, flip=True)(x, seeded_generator(0))
    seen = set()
    for before, after in zip(x, out, strict=True):
        group = [(k, m) for k in range(4) for m in (0, 1)]
        (found,) = [
            (k, m) for k, m in group if torch.equal((before.flip(-1) if m else before).rot90(k, (-2, -1)), after)
        ]
        seen.add(found)
    assert len(seen) == 8


@pytest.mark.parametrize("padding_mode", PADDING_MODES)
def test_shifts_by_whole_pixels_are_exact(padding_mode: str) -> None:
    x = images(200)
    out = RandomAffine(shift=2, padding_mode=padding_mode)(x, seeded_generator(0))
    seen = set()
    for before, after in zip(x, out, strict=True):
        padded = functional.pad(before[None], (2, 2, 2, 2), mode=PADDING_MODES[padding_mode])[0]
        places = [(row, column) for row in range(5) for column in range(5)]
        (found,) = [(r, c) for r, c in places if torch.equal(padded[:, r : r + 12, c : c + 12], after)]
        seen.add(found)
    assert len(seen) == 25


def test_shifts_need_larger_images() -> None:
    RandomAffine(shift=11, padding_mode="reflection")(images(), seeded_generator(0))
    with raises("augment.shift"):
        RandomAffine(shift=12)(images(), seeded_generator(0))


def test_quarter_turns_need_squares() -> None:
    with raises("augment.quarter_turns"):
        RandomAffine(quarter_turns=True)(torch.zeros(1, 1, 4, 6), seeded_generator(0))


def test_translation_is_in_pixels() -> None:
    """A smooth blob moves by at most `translate`, and by nearly that in some image."""
    axis = torch.arange(33.0) - 16
    blob = torch.exp(-(axis[:, None] ** 2 + axis**2) / 8).expand(64, 1, -1, -1)
    out = RandomAffine(translate=4)(blob, seeded_generator(0)).squeeze(1)
    moved = (out.sum(1) * axis).sum(1) / out.sum((1, 2))
    assert moved.abs().max() <= 4.05
    assert moved.min() < -3
    assert moved.max() > 3


def test_rotation_keeps_what_is_round_and_scale_magnifies() -> None:
    axis = torch.arange(32.0) - 15.5
    radius = (axis[:, None] ** 2 + axis**2).sqrt()
    disc = torch.sigmoid(8 - radius).expand(8, 1, -1, -1)
    assert (RandomAffine(degrees=180)(disc, seeded_generator(0)) - disc).abs().max() < 0.02
    bar = torch.sigmoid(8 - radius) * (axis.abs() < 3)
    assert (RandomAffine(degrees=180)(bar.expand(8, 1, -1, -1), seeded_generator(0)) - bar).abs().max() > 0.5
    larger = RandomAffine(scale=(1.5, 1.5))(disc, seeded_generator(0))
    assert larger.sum() / disc.sum() == pytest.approx(1.5**2, rel=0.03)


def test_elastic_displaces_by_its_standard_deviation() -> None:
    """On an image that is its own column number, the change is the displacement."""
    ramp = torch.arange(64.0).expand(200, 1, 64, 64)
    out = RandomAffine(elastic=2, padding_mode="border")(ramp, seeded_generator(0))
    at_control_point = (out - ramp)[:, 0, 32, 32]
    assert at_control_point.std() == pytest.approx(2, rel=0.25)
    assert (out.diff(dim=-1) - 1).abs().mean() < 0.2  # smooth


def test_blur_is_that_of_scipy() -> None:
    x = images(3).double()
    for sigma in (1.0, 2.0):
        blurred = gaussian_blur(x, torch.full((3,), sigma, dtype=torch.float64))
        expected = gaussian_filter(x.numpy(), sigma, truncate=3, mode="nearest", axes=(2, 3))
        assert torch.allclose(blurred, torch.from_numpy(expected), atol=1e-12)


def test_blur_differs_between_images_and_commutes_with_rotations() -> None:
    x = images(1).expand(8, -1, -1, -1)
    out = RandomBlur(2.0)(x, seeded_generator(0))
    assert all(not torch.equal(out[0], other) for other in out[1:])
    assert torch.equal(out, RandomBlur(2.0)(x, seeded_generator(0)))
    for k in (1, 2, 3):
        rotated = RandomBlur(2.0)(x.rot90(k, (-2, -1)), seeded_generator(0))
        assert torch.allclose(rotated, out.rot90(k, (-2, -1)), atol=1e-6)


def test_blur_of_zero_is_the_identity() -> None:
    x = images()
    assert torch.equal(gaussian_blur(x, torch.zeros(len(x))), x)
    assert torch.equal(RandomBlur()(x, seeded_generator(0)), x)
    mixed = gaussian_blur(x, torch.tensor([0.0, 2.0]).repeat(8))
    assert torch.equal(mixed[::2], x[::2])
    assert not torch.allclose(mixed[1], x[1], atol=1e-2)


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    with raises("augment.unknown_option", option="rotate"):
        Augmentation.from_config({"rotate": 3})
