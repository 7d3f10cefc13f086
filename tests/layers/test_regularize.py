import pytest
import torch
from torch import nn

from gcsa.layers.norm import FieldDropout
from gcsa.testing import assert_equivariant


def test_drops_whole_fields_of_a_sample() -> None:
    x = torch.ones(64, 3, 4, 8, 10)
    out = FieldDropout(0.25)(x)
    first = out[:, :1, :1, :1]
    assert torch.equal(out, first.expand_as(out))
    assert first.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (first == 0).float().mean() == pytest.approx(0.25, abs=0.08)
    assert first.squeeze().unique(dim=0).shape[0] > 32  # each sample has its own draw


@pytest.mark.parametrize("module", [FieldDropout(0.5).eval(), FieldDropout(0.0)])
def test_identity_in_eval_mode_and_without_probability(module: FieldDropout) -> None:
    x = torch.randn(2, 3, 3, 4, 5)
    assert module(x) is x


def test_every_draw_is_equivariant() -> None:
    assert_equivariant(FieldDropout(0.5), torch.randn(2, 4, 4, 8, 6), "d4")


def test_plain_dropout_is_not() -> None:
    with pytest.raises(AssertionError, match="train mode"):
        assert_equivariant(nn.Dropout(0.5), torch.randn(2, 4, 4, 8, 6), "d4")


@pytest.mark.parametrize("p", [-0.1, 1.0, 2])
def test_bad_probability(p: float) -> None:
    with pytest.raises(ValueError, match=f"={p} must be a finite number of at least 0 and below 1"):
        FieldDropout(p)
