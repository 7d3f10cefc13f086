"""Enlarging and fusing commute with every exact element; a kernel off its centre does not."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa.groups import group
from gcsa.layers import Fusion, SteerableConv2d, SteerableConvTranspose2d, Upsample
from gcsa.testing import assert_equivariant, randomize

GROUPS = ("c1", "c4", "c8", "d1", "d2", "d4", "d6", "d8")
MOVING = GROUPS[1:]


def field(fields: int, name: str, height: int = 6, width: int = 5) -> Tensor:
    return torch.randn(2, height, width, group(name).order, fields, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_upsample_is_equivariant(name: str, factor: int) -> None:
    assert_equivariant(Upsample(factor), field(2, name, 5, 5), name)


@pytest.mark.parametrize("name", ["c4", "d4"])
def test_upsample_to_a_size_is_equivariant(name: str) -> None:
    class ToSize(Upsample):
        def forward(self, x: Tensor, size: tuple[int, int] | None = None) -> Tensor:
            return super().forward(x, (13, 13))

    assert_equivariant(ToSize(), field(2, name, 5, 5), name)


def test_upsample_averages_neighbours() -> None:
    enlarged = Upsample()(torch.tensor([[0.0, 4.0]]).view(1, 1, 2, 1, 1))
    assert enlarged.flatten().tolist() == [0, 1, 3, 4] * 2


def test_aligned_corners_shear_a_turned_map_of_other_sides() -> None:
    class Nearest(nn.Module):
        """The control: rows and columns that are chosen from one side."""

        def forward(self, x: Tensor) -> Tensor:
            return Upsample(2)(x)[:, 1:, 1:]

    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(Nearest(), field(2, "c4", 5, 5), "c4")


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("stride", [2, 3])
def test_transposed_convolution_is_equivariant(name: str, stride: int) -> None:
    conv = randomize(SteerableConvTranspose2d(2, 3, name, stride))
    x = field(2, name, 6, 6)
    assert conv(x).shape == (2, 6 * stride, 6 * stride, group(name).order, 3)
    assert_equivariant(conv, x, name)


def test_transposed_convolution_is_the_transpose() -> None:
    down = SteerableConv2d(3, 2, 4, "d4", stride=2, bias=False).double()
    up = SteerableConvTranspose2d(2, 3, "d4", bias=False).double()
    filter = down.filter()  # (N * 2, N * 3, 4, 4), which conv_transpose2d takes from 2 fields to 3
    x = field(3, "d4", 8, 8).double()
    y = field(2, "d4", 4, 4).double()
    image = y.flatten(3).permute(0, 3, 1, 2)
    back = F.conv_transpose2d(image, filter, stride=2, padding=1).permute(0, 2, 3, 1).unflatten(3, (8, -1))
    assert torch.allclose((down(x) * y).sum(), (x * back).sum())
    assert up(y).shape == back.shape


def test_transposed_convolution_off_its_centre_fails() -> None:
    class Shifted(SteerableConvTranspose2d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).roll(1, 1)

    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(Shifted(2, 2, "c4"), field(2, "c4", 6, 6), "c4")


def test_transposed_convolution_keeps_the_variance() -> None:
    torch.manual_seed(0)
    out = SteerableConvTranspose2d(16, 16, "d4", basis="full")(torch.randn(2, 16, 16, 8, 16))
    assert 0.7 < out[:, 4:-4, 4:-4].std().item() < 1.3


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("skip_order", ["regular", "scalar"])
def test_fusion_is_equivariant(name: str, skip_order: str) -> None:
    order = group(name).order

    class Both(nn.Module):
        """A map cut into a coarse one and a finer one, so that one input moves both."""

        def __init__(self) -> None:
            super().__init__()
            self.fusion = Fusion(2, 3, 4, group(name))

        def forward(self, x: Tensor) -> Tensor:
            skip = x[..., 2:]
            if skip_order == "scalar":
                skip = skip.mean(3, keepdim=True)
            return self.fusion(x[:, ::3, ::3, :, :2], skip)

    both = randomize(Both())
    x = field(5, name, 7, 7)
    assert both(x).shape == (2, 7, 7, order, 4)
    assert_equivariant(both, x, name)


def test_refused() -> None:
    with pytest.raises(ValueError, match="factor=0"):
        Upsample(0)
    with pytest.raises(ValueError, match="stride=1"):
        SteerableConvTranspose2d(2, 2, "c4", stride=1)
