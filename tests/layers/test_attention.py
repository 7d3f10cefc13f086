import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gcsa.layers.attention import ATTENTION, GroupAttention, SpatialAttention, attend_nearby
from gcsa.layers.favor import LinearAttention, _attend_linear, attend_linear, orthogonal_features
from gcsa.layers.layout import from_tokens, to_tokens
from gcsa.testing import assert_equivariant, relative_error
from tests.errors import not_equivariant, raises

ORDERS = {"c4": 4, "c8": 8, "d1": 2, "d4": 8}
NEAR: dict[str, Callable[[int, int, int], bool]] = {
    "square": lambda dy, dx, r: max(abs(dy), abs(dx)) <= r,
    "disc": lambda dy, dx, r: dy**2 + dx**2 <= r**2,
}


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: int,
    spatial: bool = False,
    near: Callable[[int, int], bool] = lambda *_: True,
) -> Tensor:
    """Poster eq. 3 and 4 one query at a time; `near` of an offset says whether the key is in N(x)."""
    order, fields = q.shape[3:]
    out = torch.empty_like(q)
    for part in torch.arange(fields).chunk(heads):
        for y in range(q.shape[1]):
            for x in range(q.shape[2]):
                for g in range(order):
                    products = (k[..., part] * q[:, y, x, None, None, None, g, part]).sum(-1)  # (B, H, W, N)
                    scale = len(part)
                    if spatial:
                        products = (k[..., part] * q[:, y, x, None, None, :, part]).sum((-1, -2))[..., None]
                        scale *= order
                    allowed = [[near(i - y, j - x) for j in range(k.shape[2])] for i in range(k.shape[1])]
                    weight = torch.exp(products / math.sqrt(scale)) * torch.tensor(allowed)[:, :, None]
                    weight = weight / weight.sum((1, 2, 3), keepdim=True)
                    value = v[:, :, :, g : g + 1] if spatial else v
                    out[:, y, x, g, part] = (weight[..., None] * value[..., part]).sum((1, 2, 3))
    return out


def random_qkv(height: int, width: int, order: int = 4, fields: int = 4, stride: int = 1) -> list[Tensor]:
    shapes = [(height, width), (height // stride, width // stride), (height // stride, width // stride)]
    return [torch.randn(2, *shape, order, fields, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("attention", [GroupAttention, SpatialAttention])
def test_global_attention_is_the_definition(attention: type[GroupAttention], stride: int, heads: int) -> None:
    q, k, v = random_qkv(4, 2, stride=stride)
    expected = reference(q, k, v, heads, attention is SpatialAttention)
    assert torch.allclose(attention(4, 4, heads)(q, k, v), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("size", "radius"),
    [((3, 3), 0), ((3, 2), 1), ((1, 5), 1), ((5, 7), 1), ((9, 4), 2), ((3, 4), 3), ((2, 2), 2), ((20, 3), 9)],
)
@pytest.mark.parametrize("shape", ["square", "disc"])
@pytest.mark.parametrize("attention", [GroupAttention, SpatialAttention])
def test_neighbourhood_is_the_definition(
    attention: type[GroupAttention], shape: str, size: tuple[int, int], radius: int
) -> None:
    q, k, v = random_qkv(*size, order=2)
    near = lambda dy, dx: NEAR[shape](dy, dx, radius)
    expected = reference(q, k, v, 2, attention is SpatialAttention, near)
    assert torch.allclose(attention(2, 4, 2, radius, shape)(q, k, v), expected, atol=1e-12)


@pytest.mark.parametrize("shape", ["square", "disc"])
@pytest.mark.parametrize(("size", "radius"), [((5, 6), 1), ((7, 5), 2), ((3, 3), 1), ((4, 4), 0)])
def test_circular_neighbourhood_wraps_round(shape: str, size: tuple[int, int], radius: int) -> None:
    q, k, v = random_qkv(*size, order=2)
    wrap = lambda offset, length: (offset + length // 2) % length - length // 2
    near = lambda dy, dx: NEAR[shape](wrap(dy, size[0]), wrap(dx, size[1]), radius)
    attend = GroupAttention(2, 4, 2, radius, shape, circular=True)
    assert torch.allclose(attend(q, k, v), reference(q, k, v, 2, near=near), atol=1e-12)
    shifted = [x.roll((2, 1), (1, 2)) for x in (q, k, v)]
    assert torch.allclose(attend(*shifted), attend(q, k, v).roll((2, 1), (1, 2)), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_neighbourhood_in_low_precision(dtype: torch.dtype) -> None:
    q, k, v = random_qkv(5, 5)
    attend = GroupAttention(4, 4, 2, radius=1)
    low = attend(*(x.to(dtype) for x in (q, k, v)))
    assert low.dtype == dtype
    assert relative_error(low.double(), attend(q, k, v)) < 0.03


def linear_error(features: int, seed: int = 0) -> float:
    """Mean over draws of the relative error of linear attention."""
    torch.manual_seed(seed)
    q, k, v = (to_tokens(x, 1, False) for x in random_qkv(3, 3))
    q, k = q / 3, k / 3
    exact = GroupAttention(4, 4, 1)(*(from_tokens(x, 4) for x in (q, k, v)))
    draws = [attend_linear(q, k, v, orthogonal_features(features, 4).double()) for _ in range(40)]
    return sum(relative_error(from_tokens(draw, 4), exact) for draw in draws) / len(draws)


@pytest.mark.parametrize("seed", range(3))
def test_linear_attention_converges(seed: int) -> None:
    """Its error against exact attention falls as 1 / sqrt(features), as that of every mean of independent draws."""
    counts = torch.tensor([64, 256, 1024, 4096])
    errors = torch.tensor([linear_error(int(count), seed) for count in counts])
    (x, y) = (t.double().log() - t.double().log().mean() for t in (counts, errors))
    assert errors[-1] < 0.02
    assert float(x @ y / (x @ x)) == pytest.approx(-0.5, abs=0.1)


def test_chunks_do_not_change_linear_attention() -> None:
    q, k, v = (to_tokens(8 * x, 2, False).requires_grad_() for x in random_qkv(5, 5))
    projection = orthogonal_features(16, 2).double()
    whole, chunks = (_attend_linear(q, k, v, projection, chunk) for chunk in (1000, 7))
    assert relative_error(chunks, whole) < 1e-12
    slopes = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (whole, chunks)]
    for one, other in zip(*slopes, strict=True):
        assert relative_error(one, other) < 1e-10


@pytest.mark.parametrize("scale", [0, 1, 30, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_linear_attention_does_not_overflow(dtype: torch.dtype, scale: float) -> None:
    q, k, v = (
        (x * factor).to(dtype).requires_grad_() for x, factor in zip(random_qkv(4, 4), (scale, scale, 1), strict=True)
    )
    attend = LinearAttention(4, 4, 2)
    out = attend(q, k, v)
    out.sum().backward()
    assert all(x.isfinite().all() for x in (out, q.grad, k.grad, v.grad))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(attend(q, k, v), out)


def test_linear_attention_reaches_far_from_the_keys() -> None:
    """Queries whose features the keys hardly have still take a mean of the values, rather than nothing."""
    q, k, _ = (x.float() for x in random_qkv(4, 4))
    out = LinearAttention(4, 4, 2)(1000 * q, 100 * k, torch.ones_like(k))
    assert torch.allclose(out, torch.ones_like(out))


def test_orthogonal_features() -> None:
    features = orthogonal_features(10, 4)
    assert features.shape == (10, 4)
    gram = features[4:8] @ features[4:8].T
    assert torch.allclose(gram, gram.diag().diag(), atol=1e-5)


class SelfAttention(nn.Module):
    """An attention with queries, keys and values from one map; the keys large, so that a maximum matters."""

    def __init__(self, attend: nn.Module) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, 3 * x.flip(-1), x.square())


MODES: list[tuple[str, dict[str, Any]]] = [
    ("group", {}),
    ("group", dict(radius=1)),
    ("group", dict(radius=2, shape="disc")),
    ("group", dict(radius=1, circular=True)),
    ("spatial", {}),
    ("spatial", dict(radius=1, shape="disc")),
    ("linear", dict(num_random_features=16)),
]


@pytest.mark.parametrize("size", [(4, 4), (5, 3)])
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize(("mode", "options"), MODES)
def test_equivariant(mode: str, options: dict[str, Any], name: str, size: tuple[int, int]) -> None:
    attend = ATTENTION[mode](ORDERS[name], 4, 2, **options)
    assert_equivariant(SelfAttention(attend), torch.randn(2, *size, ORDERS[name], 4), name)


class CornerWindow(GroupAttention):
    """A window whose corner, not centre, is the query."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().forward(q, k.roll((1, 1), (1, 2)), v.roll((1, 1), (1, 2)))


class OwnFeatures(LinearAttention):
    """Other random features at each group element."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        for g in range(q.shape[3]):
            projection = self.projection.roll(g, 1)
            parts.append(
                attend_linear(*(to_tokens(x, self.num_heads, False) for x in (q[:, :, :, g : g + 1], k, v)), projection)
            )
        return torch.cat([from_tokens(part, 1) for part in parts], 3)


@pytest.mark.parametrize("broken", [CornerWindow(4, 4, 2, radius=1), OwnFeatures(4, 4, 2, num_random_features=8)])
def test_broken_attention_is_found(broken: nn.Module) -> None:
    with not_equivariant():
        assert_equivariant(SelfAttention(broken), torch.randn(2, 5, 5, 4, 4), "c4")


@pytest.mark.parametrize(("mode", "options"), MODES)
def test_gradients_are_finite_and_reach_everything(mode: str, options: dict[str, Any]) -> None:
    q, k, v = (x.requires_grad_() for x in random_qkv(5, 3))
    ATTENTION[mode](4, 4, 2, **options).double()(q, k, v).square().sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
        assert (x.grad != 0).any(-1).all()


@pytest.mark.parametrize(
    ("attention", "options", "key"),
    [
        (GroupAttention, dict(radius=-1), "radius"),
        (GroupAttention, dict(radius=1, shape="hexagon"), "shape"),
        (LinearAttention, dict(num_random_features=0), "num_random_features"),
        (GroupAttention, dict(radius="2"), "radius"),
        (GroupAttention, dict(radius=True), "radius"),
    ],
)
def test_bad_arguments(attention: type[nn.Module], options: dict[str, Any], key: str) -> None:
    with raises(key):
        attention(4, 4, 2, **options)


def test_a_circular_neighbourhood_must_fit_the_map() -> None:
    q = torch.randn(1, 1, 4, 7, 1, 8)
    with raises("radius.wraps"):
        attend_nearby(q, q, q, 2, "square", True)
    attend_nearby(q, q, q, 1, "square", True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fields", [4, 16, 34, 40])
@pytest.mark.parametrize(
    ("attention", "options"),
    [
        (GroupAttention, {}),
        (GroupAttention, dict(radius=1)),
        (GroupAttention, dict(radius=2, circular=True)),
        (SpatialAttention, dict(radius=1)),
        (SpatialAttention, dict(radius=3, shape="disc")),
    ],
)
def test_fused_kernels_of_gpus_take_the_shapes(
    attention: type[GroupAttention],
    options: dict[str, Any],
    fields: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What torch's `check_head_dim_size_mem_efficient` and `check_attn_mask` want: four axes, heads a multiple of 8
    numbers wide, the mask in the dtype of the queries, broadcast to (batch, heads, Q, K) and not over Q or K."""
    calls = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def spy(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        calls.append((q, k, v, attn_mask))
        return plain(q, k, v, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    q, k, v = (x.to(dtype) for x in random_qkv(7, 9, order=2, fields=fields))
    attention(2, fields, 2, **options)(q, k, v)
    ((q, k, v, mask),) = calls
    dim = fields // 2 if attention is GroupAttention else fields
    expected = dim + -dim % 8 if options else max(dim + -dim % 8, 16)
    assert q.shape[-1] == k.shape[-1] == v.shape[-1] == expected
    assert q.ndim == k.ndim == v.ndim == 4
    assert all(x.stride(-1) == 1 for x in (q, k, v))
    if options:
        assert mask is not None
        assert mask.dtype == dtype
        assert mask.shape[0] == 1
        assert mask.shape[1] in (1, q.shape[1])
        assert mask.shape[2:] == (q.shape[2], k.shape[2])
        assert all(stride % 8 == 0 for stride in mask.stride()[:3])  # else torch copies the mask to such strides


def test_a_mask_serves_all_images_and_heads() -> None:
    """Its memory does not grow with either."""
    sizes = []
    for batch, heads in ((1, 1), (5, 4)):
        q = torch.randn(batch, heads, 12, 12, 1, 16)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            attend_nearby(q.requires_grad_(), q, q, 3, "square", False)
        assert 4 * 36 * 144 in sizes  # tiles x Q x K
        sizes.clear()
