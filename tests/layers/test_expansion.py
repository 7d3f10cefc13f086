"""k x k convolutions on an expansion of the map: the same function as with the dense filter."""

import copy
from typing import Any

import pytest
import timm
import torch
from peft import get_peft_model
from torch import nn

from gcsa.adapters import lora_config
from gcsa.layers import conv as conv_file
from gcsa.layers.attention import GroupConvSelfAttention
from gcsa.layers.conv import FieldConv2d, SteerableConv2d
from gcsa.models.folding import fold
from gcsa.testing import assert_equivariant, equivariance_error, randomize

GROUPS = ("c4", "c6", "c8", "d2", "d4", "d8")
SHAPES: list[dict[str, Any]] = [
    dict(kernel_size=3),
    dict(kernel_size=5, padding_mode="circular", bias=False),
    dict(kernel_size=4, stride=2),
    dict(kernel_size=8, stride=4),
]


def pair(name: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[SteerableConv2d, SteerableConv2d]:
    """A layer with a dense filter, and the same on an expansion, whatever the rule says."""
    dense = randomize(SteerableConv2d(3, 5, group=name, dtype=torch.float64, **options))
    with monkeypatch.context() as patch:
        patch.setattr(conv_file, "should_expand", lambda *sizes: True)
        expanded = SteerableConv2d(3, 5, group=name, dtype=torch.float64, **options)
    expanded.load_state_dict(dense.state_dict())
    assert expanded.in_irreps
    assert not dense.in_irreps
    return dense, expanded


CASES = [(name, options) for name in GROUPS for options in SHAPES]
FULL = [(name, dict(kernel_size=3, basis="full")) for name in ("c4", "d2", "d4")]


@pytest.mark.parametrize(("name", "options"), [*CASES, *FULL])
def test_same_function_and_gradients(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    dense, expanded = pair(name, monkeypatch, **options)
    x = torch.randn(2, 8, 8, dense.order, 3, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(expanded(x), dense(x), rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(conv(x).square().sum(), [x, *conv.parameters()]) for conv in (dense, expanded)]
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_equivariant(name: str, options: dict[str, Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = pair(name, monkeypatch, **options)[1].to(dtype)
    assert_equivariant(layer, torch.randn(1, 8, 8, layer.order, 3, dtype=dtype), name)


def test_broken_filters_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = pair("c4", monkeypatch, kernel_size=3)[1]
    x = torch.randn(1, 5, 5, 4, 3, dtype=torch.float64)
    assert equivariance_error(layer, x, "c4", 1) < 1e-12
    layer.tables[1] = layer.tables[2]  # filters of the expansion that are not those of one another turned
    assert equivariance_error(layer, x, "c4", 1) > 1e-2


def test_sizes_that_are_not_exact_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = pair("c4", monkeypatch, kernel_size=4, stride=2)[1]
    with pytest.raises(ValueError, match="breaks exact equivariance"):
        layer(torch.randn(1, 5, 5, 4, 3, dtype=torch.float64))


def test_which_layers_expand() -> None:
    wide = dict(fields=96, out_fields=96, group="c4", kernel_size=8, stride=4)

    def layer(**options: Any) -> SteerableConv2d:
        arguments = {"device": "meta", **wide, **options}
        return SteerableConv2d(arguments.pop("fields"), **arguments)

    assert layer().pays_alone
    assert layer(device="cpu").in_irreps
    assert not layer().in_irreps
    assert not layer(device="cpu").to("meta").in_irreps
    for other in (
        layer(out_fields=24),
        layer(kernel_size=3, stride=1),
        layer(lift=True),
        layer(depthwise=True),
        layer(group="c1"),
        layer(group="c2"),
        layer(group="c3"),
    ):
        assert not other.pays_alone
        assert other.steering is None
    three = layer(fields=16, out_fields=16, kernel_size=3, stride=1, group="d4", sharers=3, device="cpu")
    assert three.shares
    assert not three.in_irreps
    assert not three.to("meta").shares


def test_state_dict_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, expanded = pair("d4", monkeypatch, kernel_size=3)
    assert list(expanded.state_dict()) == list(dense.state_dict())
    other = copy.deepcopy(expanded).to("meta").to_empty(device="cpu")
    other.load_state_dict(dense.state_dict())
    assert other.in_irreps
    x = torch.randn(1, 4, 4, 8, 3, dtype=torch.float64)
    assert torch.equal(other(x), expanded(x))


def test_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, expanded = pair("d4", monkeypatch, kernel_size=4, stride=2)
    x = torch.randn(1, 6, 6, 8, 3, dtype=torch.float64)
    folded, plain = fold(expanded), fold(expanded, dense=True)
    assert torch.allclose(folded(x), dense(x), rtol=0, atol=1e-12)
    assert torch.equal(plain(x), dense(x))
    assert plain.weight.shape == (40, 24, 4, 4)
    assert folded.weight.shape[2:] == (1, 1)
    assert list(plain.state_dict()) == ["weight", "bias"]


def attention(dtype: torch.dtype = torch.float64) -> GroupConvSelfAttention:
    return randomize(GroupConvSelfAttention(16, 2, "d4", dtype=dtype))


def expansions(module: nn.Module, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, int]:
    """What `module` gives for x, and how many expansions it took."""
    calls = []
    with monkeypatch.context() as patch:
        expand = FieldConv2d.expand
        patch.setattr(FieldConv2d, "expand", lambda self, x: calls.append(self) or expand(self, x))
        out = module(x)
    return out, len([conv for conv in calls if conv.kernel_size > 1])


def test_queries_keys_and_values_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = attention(), torch.randn(2, 5, 5, 8, 16, dtype=torch.float64)
    shared, count = expansions(layer, x, monkeypatch)
    assert count == 1
    seen = []
    hook = layer.k.register_forward_hook(lambda module, args, out: seen.append(out))
    apart, count = expansions(layer, x, monkeypatch)
    assert count == 0
    assert torch.equal(seen[0], layer.k(x))
    assert torch.allclose(shared, apart, rtol=0, atol=1e-12)
    hook.remove()
    folded = fold(layer)
    out, count = expansions(folded, x, monkeypatch)
    assert count == 1
    assert torch.allclose(out, shared, rtol=0, atol=1e-12)


def test_convolutions_of_another_shape_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = attention()
    layer.k = randomize(SteerableConv2d(16, 16, 5, "d4", sharers=3, dtype=torch.float64))
    x = torch.randn(1, 5, 5, 8, 16, dtype=torch.float64)
    out, count = expansions(layer, x, monkeypatch)
    assert count == 0
    assert torch.equal(out, layer.out(layer.attend(layer.q(x), layer.k(x), layer.v(x))))


def test_adapters_see_the_whole_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = timm.create_model("gcsa_small", depth=1).eval()
    x = torch.randn(1, 3, 24, 24)
    before, count = expansions(model, x, monkeypatch)
    assert count == 1
    adapted = get_peft_model(model, lora_config(model, rank=1, target_modules=["q"]))
    after, count = expansions(adapted, x, monkeypatch)
    assert count == 0
    assert torch.allclose(after, before, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_compiled_exported_scripted_and_traced() -> None:
    """A model that shares expansions and one with an expanded stem."""
    small = timm.create_model("gcsa_small", depth=1).eval()
    wide = timm.create_model("gcsa_base_d4", fields=48, heads=2, depth=1, img_size=32).eval()
    assert wide.stem.convs[1].in_irreps
    x = torch.randn(2, 3, 32, 32)
    for model in (small, wide):
        expected = model(x)
        compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
        ways = [
            compiled,
            torch.export.export(model, (x,)).module(),
            torch.jit.script(model),
            torch.fx.symbolic_trace(model),
        ]
        for way in ways:
            assert torch.allclose(way(x), expected, atol=1e-5)


@pytest.mark.parametrize(("sharers", "named"), [(0, "sharers=0"), ("3", "sharers=3")])
def test_sharers_out_of_range_are_named(sharers: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SteerableConv2d(2, 2, 3, "c4", sharers=sharers)
