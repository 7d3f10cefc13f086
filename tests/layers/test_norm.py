import pytest
import torch
from torch import nn

from gcsa.layers.norm import FieldNorm
from gcsa.testing import assert_equivariant, randomize


@pytest.mark.parametrize(("name", "order"), [("c8", 8), ("d4", 8)])
def test_equivariant(name: str, order: int) -> None:
    assert_equivariant(randomize(FieldNorm(6, order)), torch.randn(2, 4, 3, order, 6), name)


def test_a_scale_for_each_element_is_found() -> None:
    norm = nn.LayerNorm((4, 6))
    nn.init.normal_(norm.weight)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant(norm, torch.randn(2, 4, 4, 4, 6), "c4")


def test_normalises_each_position() -> None:
    x = 5 * torch.randn(2, 3, 4, 8, 6) + 3
    out = FieldNorm(6, 8)(x)
    assert torch.allclose(out.mean((3, 4)), torch.zeros(2, 3, 4), atol=1e-5)
    assert torch.allclose(out.var((3, 4), correction=0), torch.ones(2, 3, 4), atol=1e-4)


def test_keeps_which_element_answers_most() -> None:
    x = torch.randn(1, 1, 1, 8, 6) * torch.arange(1, 9).view(8, 1)
    energy = FieldNorm(6, 8)(x).square().sum(-1).flatten()
    assert energy.argmax() == (x - x.mean()).square().sum(-1).flatten().argmax()
    assert energy.max() > 2 * energy.min()
