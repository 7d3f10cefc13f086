import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gcsa.groups import group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.irreps import fourier_matrix, grouped_filter, irrep_pairs
from gcsa.models.folding import FoldedConv2d, fold
from gcsa.testing import assert_equivariant, equivariance_error, randomize
from tests.errors import raises

EVEN = ("c2", "c4", "c6", "c8", "d1", "d2", "d3", "d4", "d6", "d8")
GROUPS = (*EVEN, "c1", "c3")


def wide(name: str, dtype: torch.dtype = torch.float32, bias: bool = True) -> SteerableConv2d:
    """The narrowest layer of this group that computes in the irrep basis."""
    order = group(name).order
    fields = -(-(192 if order >= 8 else 384) // order)
    return randomize(SteerableConv2d(fields, fields + 1, 1, name, bias=bias, dtype=dtype))


def dense(layer: SteerableConv2d, x: torch.Tensor) -> torch.Tensor:
    bias = None if layer.bias is None else layer.bias.repeat(layer.order)
    out = F.conv2d(x.flatten(3).permute(0, 3, 1, 2), layer.filter(), bias)
    return out.permute(0, 2, 3, 1).unflatten(3, (layer.order, -1))


@pytest.mark.parametrize("name", GROUPS)
def test_irreps_are_orthogonal_representations(name: str) -> None:
    g = group(name)
    for irrep in g.irreps:
        assert np.allclose(irrep @ irrep.transpose(0, 2, 1), np.eye(irrep.shape[1]))
        products = irrep[:, None] @ irrep[None, :]
        assert np.allclose(products, irrep[g.cayley])
    assert np.allclose(g.irreps[0], 1)


@pytest.mark.parametrize("name", GROUPS)
def test_irreps_are_irreducible_and_all(name: str) -> None:
    """Their characters are orthogonal, of square norm 1, or 2 where the irrep is of complex type."""
    g = group(name)
    characters = np.stack([np.trace(irrep, axis1=1, axis2=2) for irrep in g.irreps])
    norms = [2 if irrep.shape[1] == 2 and not g.mirror else 1 for irrep in g.irreps]
    assert np.allclose(characters @ characters.T / g.order, np.diag(norms))
    # A real irrep of complex type stands in the regular representation d / 2 times, any other d times.
    assert sum(irrep.shape[1] ** 2 / norm for irrep, norm in zip(g.irreps, norms, strict=True)) == g.order


@pytest.mark.parametrize("name", EVEN)
def test_change_of_basis_is_orthogonal(name: str) -> None:
    matrix = fourier_matrix(group(name))
    assert np.allclose(matrix @ matrix.T, np.eye(len(matrix)))


@pytest.mark.parametrize("name", EVEN)
def test_grouped_filter_is_the_dense_one(name: str) -> None:
    g = group(name)
    layer = randomize(SteerableConv2d(3, 5, 1, name, bias=False, dtype=torch.float64))
    grouped = grouped_filter(layer.weight.flatten(2), torch.from_numpy(irrep_pairs(g)))
    basis = torch.from_numpy(fourier_matrix(g)).contiguous()
    blocks = torch.block_diag(*grouped.flatten(1).chunk(g.order // 2))
    filter = (
        torch.kron(basis.T.contiguous(), torch.eye(5, dtype=torch.float64))
        @ blocks
        @ torch.kron(basis, torch.eye(3, dtype=torch.float64))
    )
    assert torch.allclose(filter, layer.filter().flatten(1), atol=1e-12)


def test_odd_order_has_no_pairs() -> None:
    with raises("group.odd"):
        irrep_pairs(group("c3"))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["c4", "c8", "d2", "d4", "d6"])
def test_wide_layer_is_the_same_function(name: str, bias: bool) -> None:
    layer = wide(name, torch.float64, bias)
    assert layer.fourier is not None
    x = torch.randn(2, 3, 4, layer.order, layer.in_fields, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(dense(layer, x).square().sum(), [x, *layer.parameters()])
    found = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    assert torch.allclose(layer(x), dense(layer, x), atol=1e-10)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-8)


@pytest.mark.parametrize("name", ["c4", "c8", "d4", "d6"])
def test_wide_layer_is_equivariant(name: str) -> None:
    layer = wide(name)
    assert_equivariant(layer, torch.randn(1, 3, 4, layer.order, layer.in_fields), name)


def test_broken_change_of_basis_is_found() -> None:
    layer = wide("c4", torch.float64)
    x = torch.randn(1, 3, 4, 4, layer.in_fields, dtype=torch.float64)
    assert equivariance_error(layer, x, "c4", 1) < 1e-12
    assert layer.fourier is not None
    layer.fourier[[0, 2]] = layer.fourier[[2, 0]]
    assert equivariance_error(layer, x, "c4", 1) > 1e-2


def test_only_wide_pointwise_layers_change_basis() -> None:
    fields = 96
    for other in (
        SteerableConv2d(fields - 1, fields, 1, "c4"),
        SteerableConv2d(fields, fields, 3, "c4", device="meta"),
        SteerableConv2d(fields, fields, 1, "c4", padding=1),
        SteerableConv2d(4 * fields, 4 * fields, 1, "c1"),
        SteerableConv2d(2 * fields, 2 * fields, 1, "c3"),
        SteerableConv2d(2 * fields, 2 * fields, 1, "c2"),
        SteerableConv2d(23, 24, 1, "d4"),
    ):
        assert other.fourier is None
    assert SteerableConv2d(fields, fields, 1, "c4").fourier is not None
    assert SteerableConv2d(24, 24, 1, "d4").fourier is not None


def test_state_dict_does_not_know_the_basis() -> None:
    layer = wide("d4")
    assert list(layer.state_dict()) == ["weight", "bias", "_extra_state"]
    other = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    other.load_state_dict(layer.state_dict())
    x = torch.randn(1, 2, 2, 8, layer.in_fields)
    assert torch.equal(other(x), layer(x))


def test_folded_wide_layer_is_the_same_function() -> None:
    layer = wide("d4", torch.float64)
    folded = fold(layer)
    assert isinstance(folded, FoldedConv2d)
    x = torch.randn(1, 2, 2, 8, layer.in_fields, dtype=torch.float64)
    assert torch.allclose(folded(x), layer(x), atol=1e-12)
    assert folded.weight.shape == (8 * layer.out_fields, 2 * layer.in_fields, 1, 1)
