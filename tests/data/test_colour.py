import pytest
import torch
from torch import Tensor

from gcsa.data.colour import STAINS, RandomColour, stained
from gcsa.data.loaders import seeded_generator
from tests.errors import raises

ALL = dict(brightness=0.2, contrast=0.3, saturation=0.4, stain=0.05)


def images(count: int = 6, channels: int = 3) -> Tensor:
    return torch.rand(count, channels, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("option", ALL)
def test_each_changes_the_colours_and_stays_in_range(option: str) -> None:
    out = RandomColour(**{option: ALL[option]})(images(), seeded_generator(0))
    assert out.min() >= 0
    assert out.max() <= 1
    assert ((out - images()).abs().amax((1, 2, 3)) > 1e-3).all()


def test_it_is_a_function_of_the_generator_and_commutes_with_turns() -> None:
    colour = RandomColour(**ALL)
    out = colour(images(), seeded_generator(3))
    assert torch.equal(out, colour(images(), seeded_generator(3)))
    assert not torch.equal(out, colour(images(), seeded_generator(4)))
    turned = colour(images().rot90(1, (2, 3)), seeded_generator(3))
    assert torch.allclose(turned, out.rot90(1, (2, 3)), atol=1e-6)


def test_nothing_asked_changes_nothing() -> None:
    assert torch.equal(RandomColour()(images(), seeded_generator(0)), images())
    assert torch.equal(RandomColour(saturation=0.5)(images(2, 1), seeded_generator(0)), images(2, 1))  # grey has none


def test_saturation_keeps_the_grey() -> None:
    weights = torch.tensor((0.299, 0.587, 0.114)).view(3, 1, 1)
    x = 0.3 + 0.4 * images()  # not so rich that it is cut off
    out = RandomColour(saturation=0.4)(x, seeded_generator(0))
    assert torch.allclose((out * weights).sum(1), (x * weights).sum(1), atol=1e-6)


def test_one_stain_becomes_more_of_the_same() -> None:
    haematoxylin = torch.tensor(STAINS[0]) / torch.tensor(STAINS[0]).norm()
    amount = torch.linspace(0.1, 0.9, 5).view(1, 1, 5, 1)
    seen = 10 ** -(amount * haematoxylin.view(1, 3, 1, 1))
    none = torch.zeros(1, 3, 1, 1)
    assert torch.allclose(stained(seen, none + 1, none), seen, atol=1e-5)
    factor = torch.tensor([1.5, 1.0, 1.0]).view(1, 3, 1, 1)
    assert torch.allclose(stained(seen, factor, none), 10 ** -(1.5 * amount * haematoxylin.view(1, 3, 1, 1)), atol=1e-5)


def test_stain_needs_colour() -> None:
    with raises("augment.stain"):
        RandomColour(stain=0.1)(images(2, 1), seeded_generator(0))
