import pytest
import torch
from torch import Tensor

from gcsa.groups import group
from gcsa.layers.positions import LearnedPositions, centred_coordinates, squared_distances
from gcsa.testing import assert_equivariant, randomize, relative_error
from tests.errors import not_equivariant


@pytest.mark.parametrize("size", [(4, 4), (5, 5), (4, 6)])
@pytest.mark.parametrize("name", ["c4", "c6", "c8", "d1", "d4"])
def test_equivariant(name: str, size: tuple[int, int]) -> None:
    h = group(name)
    assert_equivariant(randomize(LearnedPositions(3, h)), torch.randn(2, *size, h.order, 3), h)


def test_positions_that_do_not_turn_are_found() -> None:
    class Fixed(LearnedPositions):
        def init_non_persistent_buffers(self) -> None:
            self.inverses.copy_(torch.eye(2).expand(self.group.order, 2, 2))

    with not_equivariant():
        assert_equivariant(Fixed(3, group("c4")), torch.randn(2, 4, 4, 4, 3), "c4")


def test_they_tell_places_apart() -> None:
    positions = LearnedPositions(16, group("c4"))
    added = positions(torch.zeros(1, 6, 6, 4, 16))[0, :, :, 0].flatten(0, 1)
    distances = torch.cdist(added, added) + 10 * torch.eye(36)
    assert distances.min() > 0.05
    assert 0.1 < added.std() < 0.5  # beside features of unit size


def test_any_size_shows_the_same_function() -> None:
    """The pixels of a map of 3 have their centres where every third pixel of a map of 9 has its own."""
    positions = LearnedPositions(3, group("d4")).double()

    def added(side: int) -> Tensor:
        return positions(torch.zeros(1, side, side, 8, 3, dtype=torch.float64))[0]

    assert relative_error(added(9)[1::3, 1::3], added(3)) < 1e-12
    assert relative_error(added(9)[::4, ::4], added(3)) > 0.1


def test_places() -> None:
    like = torch.zeros(())
    top = centred_coordinates(2, 4, like)[0]  # y upwards
    assert top.tolist() == [[-1.5, 0.5], [-0.5, 0.5], [0.5, 0.5], [1.5, 0.5]]
    assert squared_distances(2, 4, like)[1].tolist() == [2.5, 0.5, 0.5, 2.5]
