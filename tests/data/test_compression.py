import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gcsa.data.augment import Augmentation
from gcsa.data.compression import RandomJPEG, compressed
from gcsa.data.loaders import seeded_generator
from tests.errors import raises


def images(count: int = 6, channels: int = 3) -> Tensor:
    return torch.rand(count, channels, 16, 24, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("channels", [1, 3])
def test_it_gives_what_a_file_of_that_quality_holds(channels: int) -> None:
    x = images(2, channels)
    for given, found, quality in zip(x, compressed(x, [30, 90]), (30, 90), strict=True):
        file = io.BytesIO()
        Image.fromarray((255 * given).round().byte().permute(1, 2, 0).squeeze(2).numpy()).save(
            file, "JPEG", quality=quality
        )
        expected = np.atleast_3d(np.asarray(Image.open(file)))
        assert np.array_equal((255 * found).round().byte().permute(1, 2, 0).numpy(), expected)


def test_it_is_a_function_of_the_generator_and_differs_between_images() -> None:
    x = images(1).expand(6, -1, -1, -1)
    out = RandomJPEG(20)(x, seeded_generator(3))
    assert torch.equal(out, RandomJPEG(20)(x, seeded_generator(3)))
    assert not torch.equal(out, RandomJPEG(20)(x, seeded_generator(4)))
    assert not torch.equal(out[0], out[1])


def test_a_lower_quality_changes_more() -> None:
    x = torch.nn.functional.avg_pool2d(images(4, 1), 3, 1, 1)
    errors = [(compressed(x, [quality] * 4) - x).abs().mean() for quality in (100, 80, 40, 10)]
    assert errors == sorted(errors)
    assert errors[0] < 0.01 < errors[-1]


def test_nothing_asked_changes_nothing() -> None:
    assert torch.equal(RandomJPEG()(images(), seeded_generator(0)), images())


def test_it_needs_grey_or_colour() -> None:
    with raises("augment.jpeg"):
        RandomJPEG(50).check_channels(4)


def test_an_augmentation_compresses_and_refuses_what_it_cannot() -> None:
    augmentation = Augmentation.from_config({"jpeg": 30})
    for before, after in zip(images(3), augmentation(images(3), seeded_generator(3)), strict=True):
        qualities = range(30, 101)
        assert any(
            torch.equal(after, found) for found in compressed(before.expand(len(qualities), -1, -1, -1), qualities)
        )
    with raises("augment.jpeg"):
        augmentation.check(2, 16, 24)
