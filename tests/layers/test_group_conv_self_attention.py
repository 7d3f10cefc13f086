from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gcsa.layers.attention import GroupConvSelfAttention
from gcsa.layers.windows import dropout_factors
from gcsa.testing import assert_equivariant, randomize
from tests.errors import not_equivariant, raises

GROUPS = {"c4": 4, "c6": 6, "c8": 8, "d1": 2, "d4": 8}
MODES: list[dict[str, Any]] = [
    dict(attention="group"),
    dict(attention="group", radius=1),
    dict(attention="group", radius=2, shape="disc", padding_mode="circular"),
    dict(attention="group", kv_stride=2),
    dict(attention="spatial"),
    dict(attention="spatial", separable=True, kernel_size=5),
    dict(attention="spatial", kv_stride=3, separable=True),
    dict(attention="spatial", kernel_size=1),
    dict(attention="group", radius=1, attn_drop=0.4),
    dict(attention="group", radius=2, padding_mode="circular", attn_drop=0.4),
    dict(attention="spatial", padding_mode="circular", attn_drop=0.4),
    dict(attention="spatial", kv_stride=2, attn_drop=0.4),
    dict(attention="linear", num_random_features=16),
    dict(attention="linear", num_random_features=16, padding_mode="circular", proj_drop=0.5),
]


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("name", GROUPS)
def test_equivariant(name: str, options: dict[str, Any]) -> None:
    layer = randomize(GroupConvSelfAttention(4, 2, name, **options))
    assert_equivariant(layer, torch.randn(2, 6, 6, GROUPS[name], 4), name)


@pytest.mark.parametrize("options", MODES)
def test_one_broken_table_is_found(options: dict[str, Any]) -> None:
    layer = GroupConvSelfAttention(4, 2, "c4", **options)
    value = layer.v[0] if options.get("separable") else layer.v
    if value.kernel_size == 1:
        value.index[1] = value.index[1].roll(1)  # no table decides anything
    else:
        value.tables[1, 0] += torch.rand_like(value.tables[1, 0])
    with not_equivariant():
        assert_equivariant(layer, torch.randn(2, 6, 6, 4, 4), "c4")


DROPPING = [options for options in MODES if "attn_drop" in options]


@pytest.mark.parametrize("options", DROPPING)
def test_one_draw_for_each_head_and_distance_is_equivariant_and_one_for_each_weight_is_not(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = randomize(GroupConvSelfAttention(4, 2, "c4", **options)), torch.randn(2, 6, 10, 4, 4)
    assert_equivariant(layer, x, "c4")
    if "padding_mode" in options:
        torch.manual_seed(0)
        still = layer(x)
        torch.manual_seed(0)
        assert torch.allclose(layer(x.roll((1, 2), (1, 2))), still.roll((1, 2), (1, 2)), atol=1e-5)

    def independent(offsets: Tensor, reach: int, samples: int, p: float, like: Tensor) -> Tensor:
        return F.dropout(like.new_ones(samples, *offsets.shape[:2]), p)

    monkeypatch.setattr("gcsa.layers.attention.dropout_factors", independent)
    with pytest.raises(AssertionError, match=r"not equivariant.*train mode"):
        assert_equivariant(layer, x, "c4")


@pytest.mark.parametrize("options", DROPPING)
def test_dropped_weights(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a draw of zero the layer is that without dropout; a share of the draws is zero, and their mean is one."""
    layer, x = GroupConvSelfAttention(4, 2, "c4", **options).double(), torch.randn(2, 6, 6, 4, 4, dtype=torch.float64)
    drawn: list[Tensor] = []

    def recorded(*arguments: Any) -> Tensor:
        drawn.append(dropout_factors(*arguments))
        return torch.ones_like(drawn[-1])

    monkeypatch.setattr("gcsa.layers.attention.dropout_factors", recorded)
    with torch.no_grad():
        assert torch.allclose(layer(x), layer.eval()(x), atol=1e-12)
    (factors,) = drawn
    assert factors.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert len(factors.flatten(1).unique(dim=0)) == 4  # each head of each image has its own draws


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("options", DROPPING)
def test_torchscript_drops_the_same_weights(options: dict[str, Any]) -> None:
    layer, x = GroupConvSelfAttention(4, 2, "c4", **options), torch.randn(2, 6, 6, 4, 4)
    torch.manual_seed(0)
    expected = layer(x)
    torch.manual_seed(0)
    assert torch.allclose(torch.jit.script(layer)(x), expected, atol=1e-6)


def test_kernel_decides_what_the_queries_see() -> None:
    """With a 1 x 1 kernel and no neighbour, a position depends on itself alone; with 3 x 3, on its neighbours."""
    for kernel_size, reach in ((1, 1), (3, 9)):
        layer = GroupConvSelfAttention(4, 2, "c4", "group", kernel_size, radius=0)
        x = torch.randn(1, 5, 5, 4, 4, requires_grad=True)
        layer(x)[0, 2, 2].sum().backward()
        assert (x.grad != 0).any(-1).any(-1).sum() == reach


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_strided_keys_take_every_size_that_the_stride_divides(stride: int) -> None:
    layer = GroupConvSelfAttention(4, 2, "c4", kv_stride=stride)
    for size in (stride, 2 * stride, 3 * stride):
        assert layer.k(torch.randn(1, size, size, 4, 4)).shape[1:3] == (size // stride, size // stride)
    with raises("input.size"):
        layer(torch.randn(1, stride + 1, stride + 1, 4, 4))


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (dict(num_heads=3), "num_heads"),
        (dict(num_heads=0), "num_heads"),
        (dict(attention="performer"), "attention"),
        (dict(kernel_size=4), "kernel_size"),
        (dict(radius=-1), "radius"),
        (dict(num_random_features=0, attention="linear"), "num_random_features"),
        (dict(radius=1, kv_stride=2), "radius.kv_stride"),
        (dict(kv_stride=0), "kv_stride"),
        (dict(num_heads=2.0), "num_heads"),
        (dict(kernel_size=99), "kernel_size"),
        (dict(radius=1, attention="linear"), "attention.option"),
        (dict(num_random_features=8), "attention.option"),
        (dict(shape="ring", radius=1), "shape"),
        (dict(attn_drop=1.0), "attn_drop"),
        (dict(attn_drop=0.1, attention="linear"), "attention.option"),
        (dict(proj_drop=1.0), "proj_drop"),
        (dict(padding_mode="reflect"), "padding_mode"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], key: str) -> None:
    with raises(key):
        GroupConvSelfAttention(**{"fields": 4, "num_heads": 2, "group": "c4", **arguments})


def test_arguments_of_no_attention() -> None:
    for name in ("circular", "feilds"):  # the first is what the layer itself tells its attention
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            GroupConvSelfAttention(4, 2, "c4", **{name: True})


def test_all_positions_by_name() -> None:
    """`all` may stand beside a stride of the keys, which a neighbourhood may not."""
    for options in (dict(kv_stride=2), dict(padding_mode="circular")):
        layer = GroupConvSelfAttention(4, 2, "c4", radius="all", **options)
        assert layer.attend.radius is None
        assert layer(torch.randn(1, 4, 4, 4, 4)).isfinite().all()
