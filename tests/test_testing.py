import pytest
import torch
from torch import Tensor, nn

from gcsa.actions import act
from gcsa.groups import group
from gcsa.testing import assert_equivariant, assert_invariant, equivariance_error, randomize, relative_error
from tests.errors import raises


class Square(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.square()


class AddsColumn(nn.Module):
    """Not equivariant wherever `where` holds: adds its column number to each pixel."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def forward(self, x: Tensor) -> Tensor:
        broken = {"always": True, "train": self.training, "float32": x.dtype == torch.float32}[self.where]
        return x + torch.arange(x.shape[-1], dtype=x.dtype) if broken else x


class Noise(nn.Module):
    """Draws one number for each sample, so it is equivariant only with the same random state."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand(x.shape[0], *[1] * (x.ndim - 1), dtype=x.dtype)


def test_relative_error() -> None:
    x = torch.tensor([3.0, 4.0])
    assert relative_error(x, x) == 0
    assert relative_error(x + torch.tensor([0.0, 1.0]), x) == pytest.approx(0.2)
    assert relative_error(x * float("nan"), x) == float("inf")
    assert relative_error(x[:1], x) == float("inf")
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0


@pytest.mark.parametrize("module", [Square(), Noise(), nn.Identity()])
def test_equivariant_modules_pass(module: nn.Module) -> None:
    assert_equivariant(module, torch.randn(2, 3, 5, 5), "d4", "image", "image")


@pytest.mark.parametrize(
    ("where", "named"), [("always", "eval mode, float64"), ("train", "train mode"), ("float32", "float32")]
)
def test_broken_modules_fail(where: str, named: str) -> None:
    with pytest.raises(AssertionError, match=rf"AddsColumn is not equivariant.*element 1 of c4, .*{named}"):
        assert_equivariant(AddsColumn(where), torch.randn(1, 1, 4, 4), "c4", "image", "image")


def test_elements_that_are_not_asked_for_are_not_tested() -> None:
    """Element 6 of d4 mirrors the rows, which leaves the columns where they are."""
    x = torch.randn(1, 1, 4, 4)
    assert_equivariant(AddsColumn("always"), x, "d4", "image", "image", elements=(6,))
    with pytest.raises(AssertionError, match="element 4 of d4"):
        assert_equivariant(AddsColumn("always"), x, "d4", "image", "image", elements=(6, 4))


def test_the_first_element_that_fails_ends_the_check() -> None:
    module, passes = AddsColumn("always"), []
    module.register_forward_hook(lambda *_: passes.append(1))
    with pytest.raises(AssertionError, match="element 4 of d4"):
        assert_equivariant(module, torch.randn(1, 1, 4, 4), "d4", "image", "image", elements=(6, 4, 1, 2))
    assert len(passes) == 3  # of the image, and in the poses 6 and 4


class Fails(nn.Module):
    """Equivariant but where the pixel of the first image that it looks at is the largest."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__()
        self.row, self.column = row, column

    def forward(self, x: Tensor) -> Tensor:
        return x.square() + (x[0, 0, self.row, self.column] == x.max())


@pytest.mark.parametrize("name", ["c2", "c6", "d1", "d2", "d3", "d5", "d6", "d8", "d12"])
def test_every_exact_element_is_tested(name: str) -> None:
    """A function that fails for one exact element fails; for a pose that no exact element gives, it passes."""
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 1, 0] = 1.0  # in eight different places
    places = {g: divmod(int(act(x, "d4", g, "image").argmax()), 5) for g in range(8)}
    tested = {divmod(int(act(x, name, g, "image").argmax()), 5) for g in group(name).exact_elements[1:]}
    for place in list(places.values())[1:]:
        if place in tested:
            with pytest.raises(AssertionError, match=f"of {name}, eval mode"):
                assert_equivariant(Fails(*place), x, name, "image", "image")
        else:
            assert_equivariant(Fails(*place), x, name, "image", "image")


@pytest.mark.parametrize(("name", "elements"), [("c1", None), ("c3", None), ("c4", (0,)), ("d4", ())])
def test_the_identity_alone_tests_nothing(name: str, elements: tuple[int, ...] | None) -> None:
    with raises("group.identity"):
        assert_equivariant(AddsColumn("always"), torch.randn(1, 1, 4, 4), name, "image", "image", elements)
    if elements is None:
        with raises("group.identity"):
            assert_invariant(AddsColumn("always"), torch.randn(1, 1, 4, 4), name)


def test_nan_fails() -> None:
    with pytest.raises(AssertionError, match="error inf"):
        assert_equivariant(nn.Identity(), torch.full((1, 1, 4, 4), float("nan")), "c4", "image", "image")


def test_invariance() -> None:
    assert_invariant(nn.Sequential(Square(), nn.AdaptiveAvgPool2d(1)), torch.randn(2, 3, 4, 4), "d4")
    with pytest.raises(AssertionError):
        assert_invariant(nn.Conv2d(3, 1, 4), torch.randn(2, 3, 4, 4), "d4")


def test_module_and_random_state_stay() -> None:
    module = nn.Conv2d(1, 1, 1).eval()
    state = torch.get_rng_state()
    assert_equivariant(module, torch.randn(1, 1, 4, 4, generator=torch.Generator()), "c4", "image", "image")
    assert equivariance_error(Noise(), torch.ones(2, 4, 4, 4, 1), "c4", 1) < 1e-6
    assert not module.training
    assert module.weight.dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), state)


def test_randomize_changes_vectors_only() -> None:
    first, second = (randomize(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))) for _ in range(2))
    plain = nn.Linear(4, 4)
    weight = plain.weight.clone()
    randomize(plain)
    assert torch.equal(plain.weight, weight)
    assert torch.equal(first[0].weight, second[0].weight)
    assert torch.equal(first[0].bias, second[0].bias)
    assert (first[0].weight != 1).all()
    assert (first[0].bias != 0).all()
    assert not torch.equal(randomize(nn.LayerNorm(4), seed=1).bias, first[0].bias)
