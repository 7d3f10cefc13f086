from typing import Any

import pytest
import torch
from torch import nn

from gcsa.groups import group
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.pooling import CentredMean, InvariantHead
from gcsa.testing import assert_equivariant, randomize
from tests.errors import not_equivariant, raises

GROUPS = ("c4", "c8", "d4")


def test_views() -> None:
    x = torch.randn(2, 3, 4, 8, 5)
    assert torch.equal(from_nchw(to_nchw(x), 8), x)
    assert to_nchw(x).data_ptr() == x.data_ptr()
    assert torch.equal(to_nchw(x)[:, 5 * 2 + 3], x[..., 2, 3])  # group-major


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("hidden_fields", [0, 7])
@pytest.mark.parametrize("pool", ["avg", "max"])
@pytest.mark.parametrize("name", GROUPS)
def test_invariant(name: str, pool: str, hidden_fields: int, centred: bool) -> None:
    h = group(name)
    head = randomize(InvariantHead(5, 3, h, hidden_fields, pool, centred=centred))
    assert_equivariant(head, torch.randn(2, 5 * h.order, 4, 5), h, "regular", "invariant")


def test_unpooled_map_moves() -> None:
    head = InvariantHead(5, 0, group("d4"), pool="")
    assert_equivariant(head, torch.randn(2, 40, 4, 4), "d4", "regular", "regular")


@pytest.mark.parametrize("size", [(5, 5), (4, 6)])
def test_the_centred_mean_weighs_by_distance(size: tuple[int, int]) -> None:
    mean = CentredMean(3)
    one = torch.eye(size[0] * size[1]).view(-1, *size, 1, 1).expand(-1, -1, -1, 2, 3)  # each image one position
    weights = mean(one)[:, 0].view(*size, 3)
    assert torch.allclose(weights.sum((0, 1)), torch.ones(3))
    assert torch.allclose(weights[..., 0], torch.full(size, 1 / (size[0] * size[1])))  # the plain mean
    assert torch.equal(weights, weights.flip(0))
    assert torch.equal(weights, weights.flip(1))
    assert (weights[size[0] // 2, size[1] // 2] >= weights[0, 0]).all()
    assert weights[size[0] // 2, size[1] // 2, 2] > 100 * weights[0, 0, 2]


def test_weights_about_another_point_are_found() -> None:
    class Beside(CentredMean):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.roll(1, 1))

    head = InvariantHead(5, 3, group("c4"), centred=True)
    head.centred = Beside(5)
    with not_equivariant():
        assert_equivariant(head, torch.randn(2, 20, 4, 4), "c4", "regular", "invariant")


class FlatHead(InvariantHead):
    """Pools over positions only, so that it sees which way up the image is."""

    def forward(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        return x.mean((2, 3))


def test_broken_head_is_found() -> None:
    with not_equivariant():
        assert_equivariant(FlatHead(5, 3, group("c4")), torch.randn(2, 20, 4, 4), "c4", "regular", "invariant")


def test_shapes_and_reset() -> None:
    head = InvariantHead(5, 3, group("c4"), hidden_fields=7)
    x = torch.randn(2, 20, 4, 4)
    assert head(x).shape == (2, 3)
    assert head(x, pre_logits=True).shape == (2, 7)
    head.reset(0)
    assert isinstance(head.fc, nn.Identity)
    assert head(x).shape == (2, 7)
    head.reset(9, "max")
    assert head(x).shape == (2, 9)
    assert head.global_pool == "max"
    head.reset(0, "")
    assert head(x) is x


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (dict(drop_rate=-0.1), "drop_rate"),
        (dict(drop_rate=1), "drop_rate"),
        (dict(num_classes=2.5), "num_classes"),
        (dict(num_classes=-1), "num_classes"),
        (dict(hidden_fields=-1), "hidden_fields"),
        (dict(pool="mean"), "global_pool"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], key: str) -> None:
    with raises(key):
        InvariantHead(**{"fields": 5, "num_classes": 3, "group": group("c4"), **arguments})
