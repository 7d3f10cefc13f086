import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from gcsa.groups import group
from gcsa.layers.conv import SteerableConv2d, check_exact
from gcsa.layers.kernels import count_functions
from gcsa.testing import assert_equivariant, randomize
from tests.errors import not_equivariant, raises

GROUPS = ("c2", "c4", "c6", "c8", "d1", "d2", "d4", "d6")


def image(order: int, *size: int, fields: int = 3) -> torch.Tensor:
    return torch.randn(2, *size, order, fields)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (dict(kernel_size=1), (5, 5)),
        (dict(kernel_size=3), (6, 6)),
        (dict(kernel_size=3), (5, 7)),
        (dict(kernel_size=3, padding=0), (4, 7)),
        (dict(kernel_size=5, bias=False), (4, 4)),
        (dict(kernel_size=3, stride=2), (5, 7)),
        (dict(kernel_size=4, stride=2), (6, 8)),
        (dict(kernel_size=2, stride=2), (4, 4)),
        (dict(kernel_size=7, stride=3), (3, 9)),
        (dict(kernel_size=8, stride=4), (8, 8)),
        (dict(kernel_size=3, depthwise=True), (5, 6)),
        (dict(kernel_size=4, stride=2, depthwise=True, bias=False), (6, 6)),
        (dict(kernel_size=3, padding_mode="circular"), (5, 4)),
        (dict(kernel_size=4, stride=2, padding_mode="circular"), (4, 6)),
    ],
)
@pytest.mark.parametrize("name", GROUPS)
def test_equivariant(name: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    layer = randomize(SteerableConv2d(3, 3, group=name, **options))
    assert_equivariant(layer, image(layer.order, *size), name)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (dict(kernel_size=1), (4, 5)),
        (dict(kernel_size=5), (6, 7)),
        (dict(kernel_size=4, stride=2), (6, 4)),
        (dict(kernel_size=3, padding_mode="circular"), (5, 5)),
    ],
)
@pytest.mark.parametrize("name", GROUPS)
def test_lift_is_equivariant(name: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    layer = randomize(SteerableConv2d(2, 3, group=name, lift=True, **options))
    assert_equivariant(layer, torch.randn(2, 2, *size), name, input="image")


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (dict(kernel_size=3), (5, 6)),
        (dict(kernel_size=4, stride=2), (6, 4)),
        (dict(kernel_size=3, depthwise=True), (5, 6)),
        (dict(kernel_size=8, stride=4, lift=True), (8, 12)),
    ],
)
@pytest.mark.parametrize("name", ["c2", "c4", "d1", "d2", "d4"])
def test_every_filter_is_equivariant(name: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    layer = randomize(SteerableConv2d(3, 3, group=name, basis="full", **options))
    lifts = "lift" in options
    x = torch.randn(2, 3, *size) if lifts else image(layer.order, *size)
    assert_equivariant(layer, x, name, input="image" if lifts else "field")
    layer.tables[1, 0] = layer.tables[0, 0]
    with not_equivariant():
        assert_equivariant(layer, x, name, input="image" if lifts else "field")


def test_the_full_basis_holds_every_filter() -> None:
    layer = SteerableConv2d(1, 1, 3, "c1", lift=True, basis="full")
    assert layer.weight.shape == (1, 1, 1, 9)
    filter = torch.randn(3, 3)
    layer.weight.data = filter.view_as(layer.weight)
    assert torch.equal(layer.filter()[0, 0], filter)
    assert SteerableConv2d(1, 1, 3, "c1", lift=True).weight.shape[-1] == 6


@pytest.mark.parametrize(
    ("basis", "name", "key"),
    [
        ("full", "c8", "basis.group"),
        ("pixels", "c4", "basis"),
    ],
)
def test_a_basis_that_cannot_be(basis: str, name: str, key: str) -> None:
    with raises(key):
        SteerableConv2d(2, 2, 3, name, basis=basis)


def test_weights_of_one_basis_are_refused_by_the_other() -> None:
    """One pixel has one function in both; larger kernels have more in the full basis."""
    full, band = (SteerableConv2d(2, 2, 1, "c4", basis=basis) for basis in ("full", "band"))
    band.load_state_dict(full.state_dict())
    full, band = (SteerableConv2d(2, 2, 3, "c4", basis=basis) for basis in ("full", "band"))
    with raises("weights.basis"):
        band.load_state_dict(full.state_dict())


@pytest.mark.parametrize("name", ["c4", "c8", "d4"])
@pytest.mark.parametrize("broken", ["table", "cayley"])
def test_broken_layer_is_found(name: str, broken: str) -> None:
    layer = SteerableConv2d(3, 3, 3, name)
    if broken == "table":
        layer.tables[1, 2, 0, 0] += 0.01
    else:
        layer.index.copy_(torch.from_numpy(group(name).cayley))  # g m instead of g^-1 m
    with not_equivariant():
        assert_equivariant(layer, image(layer.order, 5, 5), name)


@pytest.mark.parametrize("name", ["c4", "c8", "d4", "d6"])
@pytest.mark.parametrize(
    "options",
    [
        dict(kernel_size=1),
        dict(kernel_size=5),
        dict(kernel_size=4, stride=2),
        dict(kernel_size=3, depthwise=True),
        dict(kernel_size=4, stride=2, lift=True),
    ],
)
def test_keeps_the_variance(name: str, options: dict[str, Any]) -> None:
    layer = SteerableConv2d(16, 16, group=name, padding=0, **options)
    x = torch.randn(4, 16, 16, 16) if layer.lift else image(layer.order, 16, 16, fields=16)
    assert 1 / 1.5 < layer(x).std() < 1.5


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("stride", [1, 2])
def test_circular_padding_commutes_with_cyclic_shifts(lift: bool, stride: int) -> None:
    kernel_size, axes = (3, 4)[stride - 1], (2, 3) if lift else (1, 2)
    layer = SteerableConv2d(3, 3, kernel_size, "c4", lift, stride, padding_mode="circular").double()
    x = (torch.randn(2, 3, 6, 8) if lift else image(4, 6, 8)).double()
    shifted = layer(x.roll((stride, -2 * stride), axes))
    assert torch.allclose(shifted, layer(x).roll((1, -2), (1, 2)), atol=1e-12)
    plain = SteerableConv2d(3, 3, kernel_size, "c4", lift, stride).double()
    assert not torch.allclose(plain(x.roll((stride, -2 * stride), axes)), plain(x).roll((1, -2), (1, 2)), atol=1e-3)


def test_depthwise_mixes_nothing() -> None:
    layer = SteerableConv2d(3, 3, 3, "d4", depthwise=True, bias=False)
    x = torch.zeros(1, 5, 5, 8, 3)
    x[:, :, :, 6, 1] = torch.randn(5, 5)
    out = layer(x)
    assert out[..., 6, 1].any()
    out[..., 6, 1] = 0
    assert not out.any()


@pytest.mark.parametrize("options", [{}, dict(stride=2, kernel_size=4), dict(kernel_size=1), dict(depthwise=True)])
def test_forward_is_conv2d_with_the_filter(options: dict[str, Any]) -> None:
    layer = randomize(SteerableConv2d(3, 3, group="d4", **{"kernel_size": 3, **options}))
    x = image(8, 6, 6)
    planes = x.flatten(3).permute(0, 3, 1, 2)
    groups = layer.out_features if layer.depthwise else 1
    bias = layer.bias.repeat(8)
    out = torch.nn.functional.conv2d(planes, layer.filter(), bias, layer.stride, layer.padding, groups=groups)
    assert torch.allclose(layer(x), out.permute(0, 2, 3, 1).unflatten(3, (8, 3)), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ((0, 3, 3, "c4"), "in_fields"),
        ((3, -1, 3, "c4"), "out_fields"),
        ((3, 3, 0, "c4"), "kernel_size"),
        ((3, 3, 3, "c4", False, 0), "stride"),
        ((3, 3, 4, "c4"), "kernel_size"),
        ((3, 3, 3, "c4", False, 1, None, "reflect"), "padding_mode"),
        ((3, 6, 3, "c4", False, 1, None, "zeros", True), "depthwise"),
        ((3, 3, 3, "c4", True, 1, None, "zeros", True), "depthwise"),
        ((3, 3, 3, "c0"), "group"),
        ((3, 3, 3, "c100000"), "group.rotations"),
        ((3, 3, 99, "c4"), "kernel_size"),
        ((3, 3, 3.0, "c4"), "kernel_size"),
        ((True, 3, 3, "c4"), "in_fields"),
    ],
)
def test_bad_arguments(arguments: tuple[Any, ...], key: str) -> None:
    with raises(key):
        SteerableConv2d(*arguments)


@pytest.mark.parametrize(
    ("size", "conv", "near"),
    [
        ((5, 6), (4, 2, 1), "4 or 6"),
        ((6, 5), (4, 2, 1), "4 or 6"),
        ((6, 6), (3, 2, 1), "5 or 7"),
        ((1, 1), (8, 4, 2), "4"),
    ],
)
def test_inexact_size_names_the_nearest(size: tuple[int, int], conv: tuple[int, int, int], near: str) -> None:
    with raises("input.size"):
        check_exact(*size, *conv)
    for good in map(int, near.split(" or ")):
        check_exact(good, good, *conv)


def test_forward_refuses_inexact_sizes() -> None:
    layer = SteerableConv2d(3, 3, 4, "c4", stride=2)
    with raises("input.size"):
        layer(image(4, 5, 5))
    SteerableConv2d(3, 3, 4, "c1", stride=2)(image(1, 5, 5))  # nothing to break


def test_foreign_fingerprint_is_refused() -> None:
    layer = SteerableConv2d(3, 3, 3, "c4")
    state = layer.state_dict()
    assert list(state) == ["weight", "bias", "_extra_state"]
    with raises("weights.basis"):
        layer.load_state_dict({**state, "_extra_state": state["_extra_state"] + 1})
    with raises("weights.basis"):
        SteerableConv2d(3, 3, 3, "d2").load_state_dict(state)
    del state["_extra_state"]
    with pytest.raises(RuntimeError, match="_extra_state"):
        layer.load_state_dict(state)


@pytest.mark.parametrize("change", [lambda t: sum([t] * 3) / 3, Tensor.float, Tensor.bfloat16, Tensor.half])
def test_averaged_and_cast_state_dicts_are_taken(change: Callable[[Tensor], Tensor]) -> None:
    """As in a mean of several models' weights, which knows nothing of fingerprints."""
    layer, other = SteerableConv2d(3, 3, 3, "c4"), SteerableConv2d(3, 3, 3, "c4")
    state = {name: change(tensor) for name, tensor in layer.state_dict().items()}
    other.load_state_dict(state)
    assert torch.equal(other.weight, state["weight"].float())
    if state["_extra_state"].isfinite():  # half precision is too narrow for a fingerprint
        with raises("weights.basis"):
            other.load_state_dict({**state, "_extra_state": state["_extra_state"] * 0.7})


def test_maps_of_another_group_are_refused() -> None:
    """As many channels do not make a map of c4 one of c8."""
    for kernel_size in (1, 3):
        with raises("input.order"):
            SteerableConv2d(8, 8, kernel_size, "c8")(torch.randn(1, 5, 5, 4, 16))


@pytest.mark.parametrize("decay", [0.9, 0.999, 0.9999])
def test_weight_averaging_leaves_the_basis_alone(decay: float) -> None:
    """Averaging (Lightning's EMA averages all buffers) must not touch the Cayley table or the fingerprint."""
    layer = SteerableConv2d(1, 1, 3, "c16")
    average = AveragedModel(layer, avg_fn=get_ema_avg_fn(decay), use_buffers=True)
    for _ in range(20):
        average.update_parameters(layer)
    assert torch.equal(average.module.index.long(), layer.index.long())  # as the layer reads it
    assert torch.allclose(average.module.tables, layer.tables)
    layer.load_state_dict(average.module.state_dict())


def test_state_dict_is_the_same_in_train_and_eval() -> None:
    layer = SteerableConv2d(3, 3, 3, "c4")
    x = image(4, 5, 5)
    before = {key: value.clone() for key, value in layer.train().state_dict().items()}
    layer.eval()(x)
    after = layer.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    with torch.no_grad():
        old = layer(x)
        layer.weight.mul_(2)
        assert not torch.allclose(layer(x), old)  # no stale filter


def test_copies_give_the_same(tmp_path: Path) -> None:
    layer = randomize(SteerableConv2d(3, 3, 3, "d4")).eval()
    x = image(8, 5, 5)
    expected = layer(x)
    loaded = SteerableConv2d(3, 3, 3, "d4")
    save_model(layer, str(tmp_path / "layer.safetensors"))
    load_model(loaded, tmp_path / "layer.safetensors")
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded):
        assert torch.equal(other(x), expected)


def test_nothing_is_computed_on_the_meta_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of weights names the group and the kernel before anyone knows that its tensors fit them."""
    for name in ("planar_tables", "steering_matrices", "fingerprint", "fingerprint_of"):
        monkeypatch.setattr(f"gcsa.layers.conv.{name}", pytest.fail)
    state = SteerableConv2d(3, 3, 15, "d64", device="meta").state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "weight": (3, 3, 128, count_functions(15, "band")),
        "bias": (3,),
        "_extra_state": (),
    }


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [True, False])
def test_loading_fills_the_tables(assign: bool, strict: bool) -> None:
    """From the meta device, and from memory that holds anything."""
    source, x = randomize(SteerableConv2d(3, 3, 3, "d4", dtype=torch.float64)), image(8, 5, 5).double()
    state = source.state_dict() if strict else dict(source.named_parameters())
    for layer in (
        SteerableConv2d(3, 3, 3, "d4", device="meta", dtype=None if assign else torch.float64),
        SteerableConv2d(3, 3, 3, "d4", dtype=torch.float64).to_empty(device="cpu"),
    ):
        if layer.tables.is_meta and not assign:
            layer.to_empty(device="cpu")
        else:
            layer.tables = torch.full_like(layer.tables, float("nan"))
        layer.load_state_dict(state, strict=strict, assign=assign)
        assert torch.equal(layer(x), source(x))


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float32])
def test_a_wider_type_fills_the_tables(narrow: torch.dtype) -> None:
    """Or they would keep the rounding of the narrow one, until the weights are loaded anew."""
    layer, exact = (SteerableConv2d(3, 3, 3, "c8", dtype=torch.float64) for _ in range(2))
    layer.to(narrow).double()
    assert torch.equal(layer.tables, exact.tables)


@pytest.mark.parametrize("wrong", [0.0, float("nan"), 1e9])
def test_the_fingerprint_is_of_the_tables_as_they_are(wrong: float) -> None:
    layer = SteerableConv2d(3, 3, 3, "c4")
    good = layer.state_dict()["_extra_state"]
    layer.tables[2, 1] = wrong
    state = layer.state_dict()
    assert state["_extra_state"] != good
    with raises("weights.basis"):
        layer.load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_fingerprint_does_not_depend_on_the_precision(dtype: torch.dtype) -> None:
    layer = SteerableConv2d(3, 3, 7, "d4")
    good = layer.state_dict()["_extra_state"]
    assert layer.to(dtype).state_dict()["_extra_state"] == good
    assert layer.float().state_dict()["_extra_state"] == good
    assert layer.to("meta").state_dict()["_extra_state"].is_meta


def test_precision_of_one_layer_leaves_others_alone() -> None:
    first, second = (SteerableConv2d(3, 3, 3, "c8") for _ in range(2))
    first.double()
    assert second(image(8, 4, 4)).dtype == torch.float32
    assert first(image(8, 4, 4).double()).dtype == torch.float64
    assert SteerableConv2d(3, 3, 3, "c8", dtype=torch.bfloat16)(image(8, 4, 4).bfloat16()).dtype == torch.bfloat16


def test_gradients_reach_all_parameters() -> None:
    layer = SteerableConv2d(2, 2, 3, "d4").double()
    x = image(8, 4, 4, fields=2).double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda w: torch.func.functional_call(layer, {"weight": w}, (x.detach(),)), layer.weight
    )
    layer(x).square().mean().backward()
    assert x.grad.abs().min() > 0
    assert layer.bias.grad.abs().min() > 0
