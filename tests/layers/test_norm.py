import pytest
import torch
from torch import nn

from gcsa.layers.norm import NORMS, FieldBatchNorm, FieldDropout, FieldNorm, make_norm
from gcsa.testing import assert_equivariant, randomize
from tests.errors import not_equivariant, raises


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize(("name", "order"), [("c4", 4), ("c8", 8), ("d4", 8)])
def test_equivariant(name: str, order: int, kind: str) -> None:
    norm = randomize(make_norm(kind, 6, order))
    norm(3 * torch.randn(2, 5, 5, order, 6) + 1)  # running statistics that are not those it began with
    assert_equivariant(norm, torch.randn(2, 4, 3, order, 6), name)


def test_a_scale_for_each_element_is_found() -> None:
    norm = nn.LayerNorm((4, 6))
    nn.init.normal_(norm.weight)
    with not_equivariant():
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


def test_batch_statistics_for_each_element_are_found() -> None:
    class ElementNorm(FieldBatchNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * torch.arange(1, 5).view(4, 1)

    with not_equivariant():
        assert_equivariant(ElementNorm(6, 4), torch.randn(2, 4, 4, 4, 6), "c4")


def test_batch_norm_keeps_how_strong_a_position_answers() -> None:
    x = torch.randn(2, 4, 4, 8, 6) * torch.arange(1, 5).view(4, 1, 1)
    out = FieldBatchNorm(6, 8)(x).square().mean((0, 1, 3, 4))
    assert out[3] > 8 * out[0]
    assert torch.allclose(out.mean(), torch.tensor(1.0), atol=1e-2)
    flat = FieldNorm(6, 8)(x).square().mean((0, 1, 3, 4))
    assert torch.allclose(flat, torch.ones(4), atol=1e-3)


def test_batch_norm_can_be_synchronised() -> None:
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(FieldBatchNorm(6, 8))
    assert isinstance(converted.bn, nn.SyncBatchNorm)


def test_unknown_norm() -> None:
    with raises("norm", value="group"):
        make_norm("group", 6, 8)


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
    with raises("proj_drop"):
        FieldDropout(p)
