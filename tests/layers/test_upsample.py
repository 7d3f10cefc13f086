"""Enlarging and fusing commute with every exact element; a kernel off its centre does not."""

import pytest
import torch
from torch import Tensor, nn

from gcsa.groups import group
from gcsa.layers import Fusion
from gcsa.layers.upsample import upsample
from gcsa.testing import assert_equivariant, randomize
from tests.errors import not_equivariant

GROUPS = ("c1", "c4", "c8", "d1", "d2", "d4", "d6", "d8")
MOVING = GROUPS[1:]


def field(fields: int, name: str, height: int = 6, width: int = 5) -> Tensor:
    return torch.randn(2, height, width, group(name).order, fields, generator=torch.Generator().manual_seed(0))


class Upsample(nn.Module):
    """By a scale, and the control: rows and columns that are chosen from one side."""

    def __init__(self, scale: int, first: int = 0) -> None:
        super().__init__()
        self.scale, self.first = scale, first

    def forward(self, x: Tensor) -> Tensor:
        return upsample(x, self.scale)[:, self.first :, self.first :]


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("scale", [1, 2, 3])
def test_upsample_is_equivariant(name: str, scale: int) -> None:
    assert_equivariant(Upsample(scale), field(2, name, 5, 5), name)


def test_upsample_averages_neighbours() -> None:
    enlarged = upsample(torch.tensor([[0.0, 4.0]]).view(1, 1, 2, 1, 1), 2)
    assert enlarged.flatten().tolist() == [0, 1, 3, 4] * 2


def test_upsample_from_one_side_is_found() -> None:
    with not_equivariant():
        assert_equivariant(Upsample(2, first=1), field(2, "c4", 5, 5), "c4")


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("skip_order", ["regular", "scalar"])
def test_fusion_is_equivariant(name: str, skip_order: str) -> None:
    order = group(name).order

    class Both(nn.Module):
        """A map cut into a coarse one and a finer one, so that one input moves both."""

        def __init__(self) -> None:
            super().__init__()
            self.fusion = Fusion(2, 3, 4, group(name), scale=3)

        def forward(self, x: Tensor) -> Tensor:
            skip = x[..., 2:]
            if skip_order == "scalar":
                skip = skip.mean(3, keepdim=True)
            return self.fusion(x[:, 1::3, 1::3, :, :2], skip)

    both = randomize(Both())
    x = field(5, name, 9, 9)
    assert both(x).shape == (2, 9, 9, order, 4)
    assert_equivariant(both, x, name)
