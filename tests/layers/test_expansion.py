"""Convolutions on an expansion of the map, alone and as queries, keys and values: the same function as with dense filters."""

import copy
from typing import Any

import pytest
import timm
import torch
from peft import get_peft_model
from torch import nn

from gcsa.adapters import lora_config
from gcsa.layers.attention import GroupConvSelfAttention
from gcsa.layers.conv import FieldConv2d, SteerableConv2d
from gcsa.layers.conv_plans import Plan
from gcsa.models.folding import fold
from gcsa.testing import assert_equivariant, equivariance_error, randomize
from tests.errors import raises

CASES: list[tuple[str, dict[str, Any]]] = [
    (name, options)
    for name in ("c4", "c6", "c8", "d2", "d4", "d8")
    for options in (
        dict(kernel_size=3),
        dict(kernel_size=5, padding_mode="circular", bias=False),
        dict(kernel_size=4, stride=2),
        dict(kernel_size=8, stride=4),
    )
]
CASES += [(name, dict(kernel_size=3, basis="full")) for name in ("c4", "d2", "d4")]


def pair(name: str, **options: Any) -> tuple[SteerableConv2d, SteerableConv2d]:
    """The same layer with a dense filter and on an expansion."""
    dense, expanded = (
        SteerableConv2d(3, 5, group=name, dtype=torch.float64, plan=plan, **options)
        for plan in (Plan(), Plan("expansion"))
    )
    expanded.load_state_dict(randomize(dense).state_dict())
    return dense, expanded


@pytest.mark.parametrize(("name", "options"), CASES)
def test_same_equivariant_function_and_gradients(name: str, options: dict[str, Any]) -> None:
    dense, expanded = pair(name, **options)
    assert list(expanded.state_dict()) == list(dense.state_dict())
    x = torch.randn(2, 8, 8, dense.order, 3, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(expanded(x), dense(x), rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(conv(x).square().sum(), [x, *conv.parameters()]) for conv in (dense, expanded)]
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-9)
    assert_equivariant(expanded, x.detach()[:1], name)


def test_broken_filters_are_found() -> None:
    layer, x = pair("c4", kernel_size=3)[1], torch.randn(1, 5, 5, 4, 3, dtype=torch.float64)
    assert equivariance_error(layer, x, "c4", 1) < 1e-12
    layer.tables[1] = layer.tables[2]  # filters of the expansion that are not rotated copies of one another
    assert equivariance_error(layer, x, "c4", 1) > 1e-2


def test_sizes_that_are_not_exact_are_refused() -> None:
    with raises("input.size"):
        pair("c4", kernel_size=4, stride=2)[1](torch.randn(1, 5, 5, 4, 3, dtype=torch.float64))


def test_plan_follows_the_device() -> None:
    """By itself or with its siblings a layer is expanded only on a CPU, also after a move; buffers are there for it."""
    wide = SteerableConv2d(96, 96, 8, "c4", stride=4, device="meta")
    assert not wide.in_irreps
    assert SteerableConv2d(96, 96, 8, "c4", stride=4).in_irreps
    moved = wide.to_empty(device="cpu")
    assert moved.in_irreps
    three = SteerableConv2d(16, 16, 3, "d4", num_siblings=3)
    assert (three.plan, three.in_irreps) == (Plan(use_shared_expansion=True), False)
    assert three.to("meta").plan == Plan()
    dense, expanded = pair("d4", kernel_size=3)
    other = copy.deepcopy(expanded).to("meta").to_empty(device="cpu")
    other.load_state_dict(dense.state_dict())
    x = torch.randn(1, 4, 4, 8, 3, dtype=torch.float64)
    assert torch.equal(other(x), expanded(x))


def test_folded() -> None:
    dense, expanded = pair("d4", kernel_size=4, stride=2)
    x = torch.randn(1, 6, 6, 8, 3, dtype=torch.float64)
    folded, portable = fold(expanded), fold(expanded, "portable")
    assert torch.allclose(folded(x), dense(x), rtol=0, atol=1e-12)
    assert torch.equal(portable(x), dense(x))
    assert portable.weight.shape == (40, 24, 4, 4)
    assert folded.weight.shape[2:] == (1, 1)
    assert list(portable.state_dict()) == ["weight", "bias"]


def attention() -> GroupConvSelfAttention:
    return randomize(GroupConvSelfAttention(16, 2, "d4", dtype=torch.float64))


def expansions(module: nn.Module, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, int]:
    """The output of `module` for x, and the number of expansions it took."""
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
    out, count = expansions(fold(layer), x, monkeypatch)
    assert count == 1
    assert torch.allclose(out, shared, rtol=0, atol=1e-12)


def test_siblings_that_differ_or_are_wrapped_are_computed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 5, 5, 8, 16, dtype=torch.float64)
    other, wrapped = attention(), attention()
    other.k = randomize(SteerableConv2d(16, 16, 5, "d4", num_siblings=3, dtype=torch.float64))
    forward = wrapped.q.forward
    wrapped.q.forward = lambda x: forward(x)
    for layer in (other, wrapped):
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
    """Convolutions that share an expansion, one with its own, and one on an expansion in the basis of irreps."""
    wide = SteerableConv2d(48, 48, 4, "d4", stride=4)
    assert wide.in_irreps
    for layer, fields in ((attention().float(), 16), (pair("d4", kernel_size=4, stride=2)[1].float(), 3), (wide, 48)):
        x = torch.randn(2, 8, 8, 8, fields)
        expected = layer(x)
        ways = [
            torch.compile(copy.deepcopy(layer), fullgraph=True, backend="aot_eager"),
            torch.export.export(layer, (x,)).module(),
            torch.jit.script(layer),
        ]
        for way in ways:
            assert torch.allclose(way(x), expected, atol=1e-5)
        assert torch.equal(torch.fx.symbolic_trace(layer)(x), expected)
