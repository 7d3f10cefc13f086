import numpy as np
import pytest
import torch
from torch import Tensor

from gcsa.tasks.segmentation.data.augment import DenseAugment, resized, rotated
from tests.errors import raises

SIDE = 48
EXACT = {"quarter_turns": True, "flip": True}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs() -> tuple[Tensor, Tensor]:
    """Labels (H, W) of nine discs whose numbers say where they are, and the image (3, H, W) that follows from them."""
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    labels = torch.zeros(SIDE, SIDE, dtype=torch.int32)
    for number, (top, left) in enumerate((t, u) for t in (8, 22, 38) for u in (9, 25, 40)):
        labels[(y - top) ** 2 + (x - left) ** 2 < 36] = number + 1
    return image_of(labels), labels


def image_of(labels: Tensor) -> Tensor:
    return torch.stack([labels.float(), (labels > 0).float(), labels.float() ** 2])


def test_neutral_changes_nothing() -> None:
    image, labels = blobs()
    turned = DenseAugment()(image, labels, generator(0))
    assert torch.equal(turned[0], image)
    assert torch.equal(turned[1], labels)


def test_exact_turns_and_mirrors_are_the_pixels_turned() -> None:
    image, labels = blobs()
    expected = {
        tuple(turned.flatten().tolist()): k
        for k, turned in enumerate(part.rot90(count, (0, 1)) for part in (labels, labels.flip(1)) for count in range(4))
    }
    seen = set()
    for seed in range(60):
        new_image, new_labels = DenseAugment(**EXACT)(image, labels, generator(seed))
        seen.add(expected[tuple(new_labels.flatten().tolist())])
        assert torch.equal(new_image, image_of(new_labels)), "image and labels move together"
        assert new_labels.dtype == torch.int32
        assert new_image.is_contiguous()
        assert new_labels.is_contiguous()
    assert len(seen) == 8


def test_negative_control_labels_that_stay_behind_are_noticed() -> None:
    """What every test here asks, image == image_of(labels), is false where only the image is turned."""
    image, labels = blobs()
    behind = 0
    for seed in range(20):
        turned, with_it = DenseAugment(**EXACT)(image, labels, generator(seed))
        behind += not torch.equal(turned, image_of(labels))
        assert torch.equal(turned, image_of(with_it))
    assert behind > 10


@pytest.mark.parametrize("options", [{"degrees": 180.0}, {**EXACT, "degrees": 30.0}])
def test_image_and_labels_are_resampled_on_one_grid(options: dict) -> None:
    """Where all four neighbours have one label, bilinear and nearest must agree; and half the foreground is such."""
    image, labels = blobs()
    stale = 0
    for seed in range(12):
        new_image, new_labels = DenseAugment(**options)(image, labels, generator(seed))
        assert new_image.shape == image.shape
        assert new_labels.shape == labels.shape
        assert set(new_labels.unique().tolist()) <= set(range(10)), "no label between two"
        pure = (new_image[0] - new_image[0].round()).abs() < 1e-5
        pure &= (new_image[2] - new_image[0].round() ** 2).abs() < 1e-4
        assert torch.equal(new_labels[pure], new_image[0][pure].round().int())
        assert (pure & (new_labels > 0)).sum() > 0.4 * (new_labels > 0).sum()
        overlap = (new_labels > 0) == (new_image[1] > 0.5)
        assert overlap.float().mean() > 0.97
        stale += int((pure & (labels != new_image[0].round().int())).sum())
    assert stale > 500, "negative control: the old labels would not do"


def test_resampling_goes_the_way_it_says() -> None:
    image, labels = blobs()
    for count in range(4):
        turned = rotated(image, labels, count * np.pi / 2)
        assert torch.equal(turned[1], labels.rot90(count, (0, 1)))
        assert (turned[0] - image.rot90(count, (1, 2))).abs().max() < 1e-4
    wide = torch.zeros(1, 20, 60), torch.zeros(20, 60, dtype=torch.int32)
    wide[1][8:12, 20:40] = 1
    assert (rotated(*wide, np.pi / 4)[1]).sum() == pytest.approx(80, rel=0.1), "not sheared"


def test_specks_become_background() -> None:
    image, labels = blobs()
    labels[0, 0:9] = 77
    labels[44:48, 0:4] = 78
    assert set(resized(image, labels, 24)[1].unique().tolist()) == set(range(10))
    assert set(resized(image, labels, 96)[1].unique().tolist()) == {*range(10), 77, 78}


@pytest.mark.parametrize("side", [24, 48, 72, 96])
def test_image_and_labels_are_resized_alike(side: int) -> None:
    image, labels = blobs()
    new_image, new_labels = resized(image, labels, side)
    assert new_image.shape == (3, side, side)
    assert set(new_labels.unique().tolist()) == set(range(10))
    assert (new_labels == 5).sum() == pytest.approx((side / SIDE) ** 2 * (labels == 5).sum().item(), rel=0.1)
    agrees, behind = (
        ((other > 0) == (new_image[1] > 0.5)).float().mean() for other in (new_labels, new_labels.flip(0))
    )
    assert agrees > 0.91
    assert behind < 0.9, "negative control: reflected labels are noticed"


def test_large_labels_are_kept_exactly() -> None:
    image, labels = blobs()
    labels = torch.where(labels > 0, labels + 2**31 - 20, labels)
    _, turned = DenseAugment(degrees=45.0)(image, labels, generator(1))
    assert set(turned.unique().tolist()) == set(labels.unique().tolist())


def test_values_are_changed_alike_and_not_clipped() -> None:
    image, labels = blobs()
    for seed in range(10):
        new_image, new_labels = DenseAugment(brightness=0.3, contrast=0.5)(image, labels, generator(seed))
        assert torch.equal(new_labels, labels)
        offset, factor = new_image[1].min(), new_image[1].max() - new_image[1].min()
        assert -0.3 <= offset <= 0.3
        assert 0.5 <= factor <= 1.5
        assert torch.allclose(new_image, image * factor + offset, atol=1e-4)
    noisy, same = DenseAugment(noise=0.2)(image, labels, generator(3))
    assert torch.equal(same, labels)
    assert 0 < (noisy - image).std() <= 0.21


def test_one_option_leaves_the_others_alone() -> None:
    image, labels = blobs()
    both, only = (DenseAugment(**EXACT, **more) for more in ({"noise": 0.1, "contrast": 0.1}, {}))
    for seed in range(8):
        assert torch.equal(both(image, labels, generator(seed))[1], only(image, labels, generator(seed))[1])
    full = DenseAugment(**EXACT, degrees=20.0, noise=0.1, blur=0.5, tint=0.1)
    for left, right in zip(full(image, labels, generator(5)), full(image, labels, generator(5)), strict=True):
        assert torch.equal(left, right)


def test_blur_and_negative() -> None:
    image, labels = blobs()
    negative, same = DenseAugment(invert=1.0)(image, labels, generator(0))
    assert torch.equal(negative, 1 - image)
    assert torch.equal(same, labels)
    some = sum(torch.equal(DenseAugment(invert=0.3)(image, labels, generator(seed))[0], image) for seed in range(100))
    assert 55 < some < 85
    blurred, same = DenseAugment(blur=3.0)(image, labels, generator(1))
    assert torch.equal(same, labels)
    assert blurred.sum() == pytest.approx(image.sum().item(), rel=0.05)
    assert blurred.diff().abs().max() < 0.9 * image.diff().abs().max()


def test_stain_changes_coloured_images_and_tint_grey_ones() -> None:
    grey = torch.rand(1, SIDE, SIDE, generator=generator(0)).repeat(3, 1, 1)
    tissue, labels = torch.rand(3, SIDE, SIDE, generator=generator(1)), blobs()[1]
    for image, key, other in ((grey, "tint", "stain"), (tissue, "stain", "tint")):
        changed, same = DenseAugment(**{key: 0.5})(image, labels, generator(2))
        assert torch.equal(same, labels)
        assert not torch.allclose(changed, image, atol=0.01)
        assert torch.equal(DenseAugment(**{other: 0.5})(image, labels, generator(2))[0], image)
    tinted = DenseAugment(tint=0.5)(grey, labels, generator(2))[0]
    factors = tinted.mean((1, 2)) / grey.mean((1, 2))
    assert torch.allclose(tinted, grey * factors[:, None, None], atol=1e-6)
    assert ((factors > 0.5) & (factors <= 1)).all()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"degrees": -1}, "augment.degrees"),
        ({"scale": [1.2, 0.8]}, "augment.scale_range"),
        ({"scale": 2}, "augment.scale"),
        ({"flip": 1}, "augment.flip"),
        ({"quarter_turns": "yes"}, "augment.quarter_turns"),
        ({"contrast": 1.0}, "augment.contrast"),
        ({"brightness": "much"}, "augment.brightness"),
        ({"noise": -0.1}, "augment.noise"),
        ({"invert": 1.5}, "augment.invert"),
        ({"stain": 1}, "augment.stain"),
        ({"elastic": 1}, "augment.unknown_option"),
    ],
)
def test_options_are_checked(options: dict, key: str) -> None:
    with raises(key):
        DenseAugment.from_config(options)


def test_quarter_turns_need_squares() -> None:
    image, labels = blobs()
    with raises("augment.quarter_turns"):
        DenseAugment(quarter_turns=True)(image[..., :20], labels[:, :20], generator(0))
