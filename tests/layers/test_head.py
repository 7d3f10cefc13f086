import pytest
import torch
from torch import nn

from gcsa.groups import group
from gcsa.layers.head import InvariantHead, from_nchw, to_nchw
from gcsa.testing import assert_equivariant, randomize

GROUPS = ("c1", "c4", "c8", "d4")


def test_views() -> None:
    x = torch.randn(2, 3, 4, 8, 5)
    assert torch.equal(from_nchw(to_nchw(x), 8), x)
    assert to_nchw(x).data_ptr() == x.data_ptr()
    assert torch.equal(to_nchw(x)[:, 5 * 2 + 3], x[..., 2, 3])  # group-major


@pytest.mark.parametrize("hidden_fields", [0, 7])
@pytest.mark.parametrize("pool", ["avg", "max"])
@pytest.mark.parametrize("name", GROUPS)
def test_invariant(name: str, pool: str, hidden_fields: int) -> None:
    h = group(name)
    head = randomize(InvariantHead(5, 3, h, hidden_fields, pool))
    assert_equivariant(head, torch.randn(2, 5 * h.order, 4, 5), h, "regular", "invariant")


def test_unpooled_map_moves() -> None:
    head = InvariantHead(5, 0, group("d4"), pool="")
    assert_equivariant(head, torch.randn(2, 40, 4, 4), "d4", "regular", "regular")


class FlatHead(InvariantHead):
    """Pools over positions only, so that it sees which way up the image is."""

    def forward(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        return x.mean((2, 3))


def test_broken_head_is_found() -> None:
    with pytest.raises(AssertionError, match="not equivariant"):
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
    assert head.pool == "max"
    head.reset(0, "")
    assert head(x) is x


def test_unknown_pool() -> None:
    with pytest.raises(ValueError, match="unknown global_pool 'mean': choose one of 'avg', 'max', ''"):
        InvariantHead(5, 3, group("c4"), pool="mean")
