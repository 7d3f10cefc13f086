"""Positions in kernelizable attention: the document's lemma, its two strategies, and what they are equal to."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gcsa.layers.favor import orthogonal_features, positive_features
from gcsa.models.baselines.kernelizable import (
    POSITIONS,
    RelativeS1Attention,
    add_positions,
    attend_distances,
    geometric_omegas,
    join_positions,
    make_attention,
    redraw,
    rotate_pairs,
    sin_cos,
    sum_by_distance,
)
from gcsa.testing import relative_error
from tests.errors import raises

SIZES = [(5, 5), (4, 7), (1, 6), (9, 3)]
ROTATION, SYMMETRY = torch.tensor([[0.7, -1.3], [1.3, 0.7]]).double(), torch.tensor([[0.7, 1.3], [1.3, -0.7]]).double()


def products(matrix: Tensor, tau: float, omega: float = 0.9) -> Tensor:
    """<phi(z - tau) W, phi(z' - tau)> for all pairs of some positions."""
    phi = sin_cos(torch.linspace(-3, 5, 9).double() - tau, torch.tensor([omega]).double())
    return phi @ matrix @ phi.T


def drift(matrix: Tensor) -> float:
    return max((products(matrix, tau) - products(matrix, 0)).abs().max().item() for tau in (0.3, 1, -4))


def test_lemma_1_is_sufficient() -> None:
    """W_q W_k^T = [[a, b], [-b, a]] gives a cos(w (z - z')) + b sin(w (z - z')), appendix A.1."""
    a, b = -0.4, 1.7
    matrix = torch.tensor([[a, b], [-b, a]]).double()
    assert drift(matrix) < 1e-14
    z = torch.linspace(-3, 5, 9).double()
    angle = 0.9 * (z[:, None] - z)
    assert torch.allclose(products(matrix, 0), a * angle.cos() + b * angle.sin(), atol=1e-14)


@pytest.mark.parametrize("matrix", [[[1, 0], [0, 0.9]], [[0.5, 1], [1, 0.5]], [[1, 2], [0, 1]], [[0, 1], [0, 0]]])
def test_lemma_1_other_matrices_drift(matrix: list[list[float]]) -> None:
    assert drift(torch.tensor(matrix).double()) > 0.05


def test_lemma_1_is_necessary() -> None:
    """Of all matrices, those with invariant products are exactly the span of the identity and the quarter turn.

    Products are linear in W, so invariance under some shifts is a linear system: its null space is found by SVD.
    """
    columns = []
    for entry in torch.eye(4).double():
        w = entry.reshape(2, 2)
        columns.append(torch.cat([(products(w, tau) - products(w, 0)).flatten() for tau in (0.3, 1, -4)]))
    _, singular, right = torch.linalg.svd(torch.stack(columns, 1))
    assert (singular > 1e-10).tolist() == [True, True, False, False]
    form = torch.tensor([[1, 0, 0, 1], [0, 1, -1, 0]]).double() / math.sqrt(2)
    assert torch.allclose(right[2:].T @ right[2:], form.T @ form, atol=1e-12)


def test_rotate_pairs_is_the_block_diagonal_matrix() -> None:
    alpha, beta = torch.randn(2, 3).double()
    u = torch.randn(5, 6).double()
    blocks = torch.block_diag(*(torch.stack([torch.stack([a, b]), torch.stack([-b, a])]) for a, b in zip(alpha, beta)))  # noqa: B905
    assert torch.allclose(rotate_pairs(u, alpha, beta), u @ blocks)


def s1_qk() -> tuple[Tensor, Tensor]:
    """Strategy 1's queries and keys (L, D) of one head on a 6 x 6 map, with the same content everywhere."""
    layer = RelativeS1Attention(8, 1).double()
    q, k = torch.randn(2, 1, 1, 1, 1, 1, 8).double().expand(2, 1, 1, 6, 6, 1, 8).unbind(0)
    with torch.no_grad():
        q, k = join_positions(q, k, layer.omegas, layer.alpha, layer.beta)
    return q.reshape(36, -1), k.reshape(36, -1)


def shifted_pairs(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Entries (i, j) of a 36 x 36 matrix over the 6 x 6 map with both in its first 5 rows, and those one row below."""
    grid = matrix.reshape(6, 6, 6, 6)
    return grid[:-1, :, :-1], grid[1:, :, 1:]


def test_s1_products_are_shift_invariant() -> None:
    q, k = s1_qk()
    here, there = shifted_pairs(q @ k.T)
    assert torch.allclose(here, there, atol=1e-12)
    assert here.std() > 0.1


def test_s1_is_shift_invariant_in_expectation() -> None:
    """The mean over draws comes within 5 standard errors of the softmax kernel at each pair; one draw does not."""
    q, k = s1_qk()
    q, k = q / 2, k / 2
    exact = torch.exp(q @ k.T / math.sqrt(q.shape[1]))
    draws = []
    for _ in range(1000):
        projection = orthogonal_features(64, q.shape[1]).double()
        # positive_features leaves out factors for each query and for all keys: those are put back here
        q_scaled, k_scaled = q * q.shape[1] ** -0.25, k * q.shape[1] ** -0.25
        q_features = torch.exp(q_scaled @ projection.T - q_scaled.square().sum(1, keepdim=True) / 2)
        k_features = torch.exp(k_scaled @ projection.T - k_scaled.square().sum(1, keepdim=True) / 2)
        estimate = q_features @ k_features.T / 64
        ours = torch.stack(positive_features(q, k, projection))
        ratio = (ours[0] @ ours[1].T) / estimate
        assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio))  # the same kernel up to a factor for each query
        draws.append(estimate)
    stack = torch.stack(draws)
    error, sigma = (stack.mean(0) - exact).abs(), stack.std(0) / math.sqrt(len(draws))
    assert (error < 5 * sigma).all()
    assert sigma.max() < 0.02 * exact.max()
    here, there = shifted_pairs(stack.mean(0))
    one_here, one_there = shifted_pairs(stack[0])
    assert relative_error(here, there) < 0.2 * relative_error(one_here, one_there)


def quadratic(q: Tensor, v: Tensor, w: Tensor, projection: Tensor) -> Tensor:
    """Strategy 2 as the document defines it, the sum over j of <q'_i, a'_ij> v_j, with every pair, and normalised."""
    height, width = q.shape[2:4]
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    y, x = y.flatten(), x.flatten()
    distance = ((y[:, None] - y).abs() + (x[:, None] - x).abs()).clamp(max=len(w) - 1)
    q_features, w_features = positive_features(q.flatten(2, 4), w, projection)
    kernel = torch.einsum("bhim,ijm->bhij", q_features, w_features[distance])
    return (kernel / kernel.sum(-1, keepdim=True) @ v.flatten(2, 4)).reshape(v.shape)


def random_s2(height: int, width: int, clip: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, v = torch.randn(2, 2, 3, height, width, 1, 4, dtype=torch.float64)
    return q, v, torch.randn(clip + 1, 4).double(), orthogonal_features(16, 4).double()


@pytest.mark.parametrize("clip", [1, 2, 6])
@pytest.mark.parametrize("size", SIZES)
def test_s2_is_its_quadratic_definition(size: tuple[int, int], clip: int) -> None:
    q, v, w, projection = random_s2(*size, clip)
    assert torch.allclose(attend_distances(q, v, w, projection), quadratic(q, v, w, projection), atol=1e-12)
    single = attend_distances(*(x.float() for x in (q, v, w, projection)))
    assert relative_error(single.double(), quadratic(q, v, w, projection)) < 1e-5


def test_s2_converges_to_softmax() -> None:
    q, v, w, _ = random_s2(5, 4, 2)
    q, w = q / 2, w / 2
    out = attend_distances(q, v, w, orthogonal_features(20000, 4).double())
    y, x = torch.meshgrid(torch.arange(5), torch.arange(4), indexing="ij")
    y, x = y.flatten(), x.flatten()
    a = w[((y[:, None] - y).abs() + (x[:, None] - x).abs()).clamp(max=2)]
    weights = torch.einsum("bhid,ijd->bhij", q.flatten(2, 4), a).div(2).softmax(-1)
    assert relative_error(out.flatten(2, 4), weights @ v.flatten(2, 4)) < 0.02


def test_s2_moves_with_shifts_where_the_neighbourhood_lies_inside() -> None:
    """After a cyclic shift, positions that are clip - 1 away from the border before and after agree; others do not."""
    q, v, w, projection = random_s2(12, 11, 3)
    shift = lambda x: x.roll((2, -1), (2, 3))
    moved = attend_distances(shift(q), shift(v), w, projection)
    expected = shift(attend_distances(q, v, w, projection))
    assert torch.allclose(moved[:, :, 4:10, 2:8], expected[:, :, 4:10, 2:8], atol=1e-12)
    assert not torch.allclose(moved[:, :, :2], expected[:, :, :2], atol=1e-3)


def test_sums_by_distance() -> None:
    sums = sum_by_distance(torch.eye(5)[2].outer(torch.eye(4)[1])[None], 3)[0]  # a single one at (2, 1)
    assert sums[0].nonzero().tolist() == [[2, 1]]
    assert sums[1].nonzero().tolist() == [[1, 1], [2, 0], [2, 2], [3, 1]]
    assert torch.equal(sums.sum(0), torch.ones(5, 4))


def test_absolute_positions() -> None:
    """Rows in the first half, columns in the second, all different, and added to what was there."""
    x = torch.randn(1, 6, 9, 8)
    encoding = add_positions(x, geometric_omegas(4)) - x
    assert torch.allclose(encoding[0, :, :1, :4].expand(-1, 9, -1), encoding[0, ..., :4], atol=1e-6)
    assert torch.allclose(encoding[0, :1, :, 4:].expand(6, -1, -1), encoding[0, ..., 4:], atol=1e-6)
    angles = torch.tensor([3, 0.03, 5, 0.05])
    assert torch.allclose(encoding[0, 3, 5], torch.stack([angles.sin(), angles.cos()], 1).flatten(), atol=1e-6)
    assert torch.pdist(encoding.reshape(54, 8)).min() > 1e-3


def shift_error(layer: nn.Module) -> float:
    """Relative error of a cyclic shift."""
    x = torch.randn(2, 8, 8, 8).double()
    return relative_error(layer(x.roll((2, 3), (1, 2))), layer(x).roll((2, 3), (1, 2)))


@pytest.mark.parametrize("position", POSITIONS)
def test_attention_layers(position: str) -> None:
    """Only without positions does the layer commute with every cyclic shift; each has gradients everywhere."""
    layer = make_attention(position, 8, 2, num_random_features=32).double()
    assert (shift_error(layer) < 1e-12) is (position in ("none", "absolute"))
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64, requires_grad=True)
    out = layer(x)
    assert out.shape == x.shape
    out.square().sum().backward()
    for name, p in [("x", x), *layer.named_parameters()]:
        assert p.grad.isfinite().all(), name
        assert (p.grad != 0).any(), name


def test_redraw_leaves_old_graphs_alone() -> None:
    """Loss of two passes with a redraw in between: gradients are the sum of both."""
    layer = make_attention("relative_s1", 8, 2, num_random_features=16)
    x = torch.randn(1, 3, 3, 8)
    before, state = layer.projection, list(layer.state_dict())
    first = layer(x)
    (layer.projection,) = redraw([layer.projection], torch.tensor(1), 1)
    assert not torch.equal(layer.projection, before)
    assert not torch.allclose(layer(x), first)
    (first + layer(x)).sum().backward()
    assert list(layer.state_dict()) == state


@pytest.mark.parametrize(
    ("position", "options", "key"),
    [
        ("rotary", {}, "position"),
        ("relative_s2", dict(clip=0), "clip"),
        ("none", dict(num_random_features=0), "num_random_features"),
        ("relative_s1", dict(width=7), "width.odd"),
        ("relative_s2", dict(num_heads=1), "num_heads.odd"),
        ("none", dict(num_heads=3), "num_heads"),
    ],
)
def test_bad_arguments(position: str, options: dict[str, Any], key: str) -> None:
    with raises(key):
        make_attention(position, **(dict(dim=8, num_heads=2) | options))
