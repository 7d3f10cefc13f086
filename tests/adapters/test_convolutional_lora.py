"""A LoRA of group convolutions is a PEFT adapter like any other: merged exactly, switched, combined, saved and loaded."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from peft import LoraConfig, PeftModel, get_peft_model, inject_adapter_in_model
from torch import Tensor, nn

from gcsa import adapters
from gcsa.adapters.convolutional_lora import ConvolutionalLora, steering_matrices
from gcsa.groups import group as make_group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.kernels import planar_tables
from gcsa.testing import assert_equivariant, assert_invariant, randomize, relative_error
from tests.errors import raises

LAYERS: dict[str, dict[str, Any]] = {
    "1 x 1": dict(kernel_size=1),
    "3 x 3": dict(kernel_size=3),
    "circular": dict(kernel_size=5, padding_mode="circular"),
    "strided": dict(kernel_size=4, stride=2, bias=False),
    "padded": dict(kernel_size=3, padding=0),
    "lifting": dict(kernel_size=3, lift=True),
    "strided lifting": dict(kernel_size=4, stride=2, lift=True),
}


def adapted(layer: nn.Module, rank: int = 2, **options: Any) -> PeftModel:
    """With random, non-zero A and B."""
    model = nn.Sequential()
    model.add_module("conv", layer)
    config = LoraConfig(r=rank, target_modules=["conv"], **{"init_lora_weights": False, **options})
    return get_peft_model(model, adapters.register(config))


def conv(group: str = "c4", **options: Any) -> SteerableConv2d:
    return randomize(SteerableConv2d(3, 5, group=group, **{"kernel_size": 3, **options}))


def image(layer: SteerableConv2d, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn((2, 3, 4, 4) if layer.lift else (2, 4, 4, layer.order, 3), dtype=dtype)


@pytest.mark.parametrize("kernel_size", [1, 3, 4, 5])
@pytest.mark.parametrize(
    ("group", "basis"),
    [
        *((name, "band") for name in ("c1", "c4", "c6", "c8", "d1", "d4")),
        *((name, "full") for name in ("c1", "c4", "d4")),
    ],
)
def test_turned_basis_functions_are_sums_of_basis_functions(group: str, basis: str, kernel_size: int) -> None:
    h = make_group(group)
    tables = torch.from_numpy(planar_tables(h, kernel_size, basis))
    matrices = torch.from_numpy(steering_matrices(h, kernel_size, basis))
    for element in range(h.order):
        sums = torch.einsum("ij,gjxy->gixy", matrices[element], tables)
        assert relative_error(sums, tables[h.cayley[:, element]]) < 1e-12


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("group", "basis"), [("c6", "band"), ("d4", "band"), ("d4", "full")])
def test_merged_is_unmerged(group: str, basis: str, kind: str) -> None:
    """phi + phi_B o phi_A is one convolution with the coefficients weight + delta, in the same basis."""
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        layer = conv(group, basis=basis, **LAYERS[kind]).to(dtype)
        layer.init_non_persistent_buffers()  # the tables were rounded to float32
        x, base = image(layer, dtype), layer.weight.detach().clone()
        plain = layer(x)
        model = adapted(layer).to(dtype)
        wrapper = model.base_model.model.conv
        for factor in (wrapper.lora_A["default"], wrapper.lora_B["default"]):
            factor.init_non_persistent_buffers()
        expected = model(x)
        assert relative_error(expected, plain) > 0.1
        model.merge_adapter()
        assert relative_error(model(x), expected) < tolerance
        model.unmerge_adapter()
        assert torch.equal(layer.weight, base)
        merged = model.merge_and_unload(safe_merge=True).conv
        assert type(merged) is SteerableConv2d
        assert relative_error(merged(x), expected) < tolerance


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("group", ["c4", "d2"])
def test_equivariant(group: str, kind: str) -> None:
    """Merged and not, in train mode with dropout too."""
    layer = conv(group, **LAYERS[kind])
    model = adapted(layer, lora_dropout=0.4)
    x, input = image(layer), "image" if layer.lift else "field"
    assert_equivariant(model, x, group, input=input)
    model.merge_adapter()
    assert_equivariant(model, x, group, input=input)


def test_starts_from_the_base_model() -> None:
    layer = conv()
    x = image(layer)
    expected = layer(x)
    model = adapted(layer, init_lora_weights=True)
    assert torch.equal(model(x), expected)
    model(x).square().sum().backward()
    wrapper = model.base_model.model.conv
    assert wrapper.lora_B["default"].weight.grad.norm() > 0  # A's gradient is zero while B is
    assert layer.weight.grad is None
    assert layer.bias.grad is None


@pytest.mark.parametrize("merged", [False, True])
def test_disabled_is_the_base_model_bit_for_bit(merged: bool) -> None:
    layer = conv("d4")
    x = image(layer)
    expected = layer(x)
    model = adapted(layer)
    if merged:
        model.merge_adapter()
    with model.disable_adapter():
        assert torch.equal(model(x), expected)
    assert torch.equal(model.unload().conv(x), expected)


def test_the_rank() -> None:
    """The document's decomposition: through r fields, with 40 numbers where a matrix has 100 (r = 2, width 10)."""
    layer = SteerableConv2d(10, 10, 1, "c1", bias=False)
    model = adapted(layer)
    assert model.get_nb_trainable_parameters() == (40, 140)
    delta = model.base_model.model.conv.coefficients("default")
    assert torch.linalg.matrix_rank(delta[..., 0, 0]) == 2


@pytest.mark.parametrize(("rslora", "scale"), [(False, 3.0), (True, 6.0)])
def test_scaling(rslora: bool, scale: float) -> None:
    """alpha / r, or alpha / sqrt(r) with rslora."""
    model = adapted(conv(), rank=4, lora_alpha=12, use_rslora=rslora)
    wrapper = model.base_model.model.conv
    assert wrapper.scaling["default"] == scale
    delta = adapters.delta(wrapper.lora_A["default"], wrapper.lora_B["default"])
    assert torch.equal(wrapper.coefficients("default"), scale * delta)


def test_switching_and_mixed_batches() -> None:
    layer = conv()
    x = image(layer)
    expected = {"__base__": layer(x)}
    model = adapted(layer)
    model.add_adapter("other", adapters.register(LoraConfig(r=3, target_modules=["conv"], init_lora_weights=False)))
    for name in ("default", "other"):
        model.set_adapter(name)
        expected[name] = model(x)
    assert relative_error(expected["default"], expected["other"]) > 0.1
    with torch.no_grad():
        mixed = model.eval()(x, adapter_names=["other", "__base__"])
    assert torch.allclose(mixed, torch.stack([expected["other"][0], expected["__base__"][1]]), atol=1e-5)
    model.set_adapter("default")
    model.delete_adapter("other")
    assert torch.equal(model(x), expected["default"])


def test_weighted_merge() -> None:
    """`cat` is the weighted sum of the deltas; `linear` is of the rank of its parts; `svd` is refused."""
    model = adapted(conv("d4"))
    model.add_adapter("other", adapters.register(LoraConfig(r=3, target_modules=["conv"], init_lora_weights=False)))
    wrapper = model.base_model.model.conv
    model.add_weighted_adapter(["default", "other"], [0.7, -2.0], "sum", combination_type="cat")
    expected = 0.7 * wrapper.coefficients("default") - 2 * wrapper.coefficients("other")
    assert relative_error(wrapper.coefficients("sum"), expected) < 1e-5
    model.add_adapter("third", adapters.register(LoraConfig(r=2, target_modules=["conv"], init_lora_weights=False)))
    model.add_weighted_adapter(["default", "third"], [1.0, 1.0], "mean", combination_type="linear")
    assert wrapper.r["mean"] == 2
    model.set_adapter("mean")
    assert_equivariant(model, image(wrapper.base_layer), "d4")
    with raises("adapter.combination_type"):
        model.add_weighted_adapter(["default", "third"], [1.0, 1.0], "decomposed", combination_type="svd")


def test_half_precision() -> None:
    """PEFT keeps the adapter of a half-precision model in float32."""
    layer = conv().to(torch.bfloat16)
    model = adapted(layer)
    assert model.base_model.model.conv.lora_A["default"].weight.dtype == torch.float32
    x = image(layer, torch.bfloat16)
    expected = model(x)
    assert expected.dtype == torch.bfloat16
    model.merge_adapter()
    assert layer.weight.dtype == torch.bfloat16
    assert relative_error(model(x).float(), expected.float()) < 0.02


@pytest.mark.parametrize("rank", [23, 24])
@pytest.mark.parametrize("group", ["c8", "d4"])
def test_half_precision_of_wide_adapters(group: str, rank: int) -> None:
    """From rank 24 on, an adapter of order 8 is computed in the basis of irreps."""
    layer = SteerableConv2d(32, 32, 1, group)
    x = torch.randn(2, 4, 4, 8, 32)
    model = adapted(layer, rank)
    expected = model(x)
    half = copy.deepcopy(model).to(torch.bfloat16)
    out = half(x.bfloat16())
    assert relative_error(out.float(), expected) < 0.03
    widened = adapted(SteerableConv2d(32, 32, 1, group).to(torch.bfloat16), rank)
    wrapper = widened.base_model.model.conv
    assert wrapper.lora_A["default"].weight.dtype == torch.float32
    assert (wrapper.lora_A["default"].fourier is not None) == (rank == 24)
    out = widened(x.bfloat16())
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert wrapper.lora_A["default"].weight.grad.isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert relative_error(model(x).float(), expected) < 0.03
    widened.merge_adapter()
    assert relative_error(widened(x.bfloat16()).float(), out.float()) < 0.03


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (dict(use_dora=True), "adapter.use_dora"),
        (dict(lora_bias=True), "adapter.lora_bias"),
        (dict(init_lora_weights="pissa"), "adapter.init_lora_weights"),
        (dict(rank=0), "adapter.rank"),
    ],
)
def test_options_that_groups_do_not_have(options: dict[str, Any], key: str) -> None:
    with raises(key):
        adapted(conv(), **options)


def test_depthwise_is_refused() -> None:
    with raises("adapter.depthwise"):
        adapted(SteerableConv2d(4, 4, 3, "c4", depthwise=True))


def test_not_finite_is_not_merged() -> None:
    model = adapted(conv())
    before = model.base_model.model.conv.weight.clone()
    with torch.no_grad():
        model.base_model.model.conv.lora_A["default"].weight.fill_(float("inf"))
    with raises("adapter.not_finite"):
        model.merge_adapter(safe_merge=True)
    assert torch.equal(model.base_model.model.conv.weight, before)


# Whole models.


def small(group: str = "c4", **options: Any) -> nn.Module:
    torch.manual_seed(0)
    options = {"fields": 4, "num_heads": 2, "depth": 1, "stem_strides": (4, 2), "num_classes": 3, **options}
    return randomize(timm.create_model("gcsa_tiny", group=group, **options)).eval()


def small_adapted(rank: int = 2, model: nn.Module | None = None, **options: Any) -> PeftModel:
    model = small() if model is None else model
    config = adapters.lora_config(model, rank, **{"init_lora_weights": False, **options})
    return get_peft_model(model, config).eval()


X = torch.randn(2, 1, 24, 24, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (dict(), dict()),
        (dict(separable=True), dict()),
        (dict(), dict(target_modules=("stem", "mlp", "attn"), use_rslora=True, lora_dropout=0.2)),
        (dict(), dict(modules_to_save=["head"])),
    ],
)
def test_save_and_load(model: dict[str, Any], options: dict[str, Any], tmp_path: Path) -> None:
    expected_base = small(**model)(X)
    peft_model = small_adapted(model=small(**model), **options)
    expected = peft_model(X)
    assert relative_error(expected, expected_base) > 1e-3
    peft_model.save_pretrained(str(tmp_path))
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in tmp_path.iterdir()}
    loaded = adapters.load(small(**model), tmp_path)
    assert torch.equal(loaded(X), expected)
    assert not any(p.requires_grad for p in loaded.parameters())
    with loaded.disable_adapter():
        assert torch.equal(loaded(X), expected_base)
    assert any(p.requires_grad for p in adapters.load(small(**model), tmp_path, is_trainable=True).parameters())
    assert relative_error(loaded.merge_and_unload()(X), expected) < 1e-5


def test_a_second_adapter_from_a_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    outputs = []
    for folder, target in ((first, ["q"]), (second, ["q", "mlp"])):
        model = small_adapted(target_modules=target)
        outputs.append(model(X))
        model.save_pretrained(str(folder))
    model = adapters.load(small(), first)
    adapters.load(model, second, "other")
    for name, expected in zip(("default", "other"), outputs, strict=True):
        model.set_adapter(name)
        assert torch.equal(model(X), expected)
    with raises("adapter.name_taken"):
        adapters.load(model, second, "other")


def test_injected_without_a_peft_model() -> None:
    model = small()
    model = inject_adapter_in_model(adapters.lora_config(model, 2, init_lora_weights=False), model)
    assert isinstance(model.stages[0].attn.q, ConvolutionalLora)
    assert_invariant(model, X, "c4")


def test_the_whole_model_is_invariant_and_trains() -> None:
    model = small_adapted(model=small("d4"), target_modules=["stem", "attn", "mlp", "head"], rank=2)
    assert_invariant(copy.deepcopy(model), X, "d4")
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    before = model(X).detach()
    model(X).square().sum().backward()
    optimizer.step()
    assert relative_error(model(X), before) > 1e-3
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if not p.requires_grad)
    assert_invariant(model, X, "d4")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (dict(rank=0), "adapter.rank"),
        (dict(rank=5), "adapter.rank_too_large"),
        (dict(target_modules=["q", "query"]), "adapter.target_modules"),
    ],
)
def test_wrong_configurations(arguments: dict[str, Any], key: str) -> None:
    with raises(key):
        adapters.lora_config(small(), **arguments)


def test_layers_that_are_not_called_are_not_adapted() -> None:
    gsa = timm.create_model("gsa_tiny", depth=1)
    assert not any("spatial" in name for name in adapters.lora_config(gsa, 2, target_modules=["attn"]).target_modules)
    with raises("adapter.target_modules"):
        adapters.lora_config(gsa, 2, target_modules=["waves"])


def test_dropout_of_single_numbers_is_refused() -> None:
    model = timm.create_model("gsa_tiny", depth=1, fields=4, num_heads=2)
    with raises("adapter.lora_dropout"):
        adapters.lora_config(model, 2, lora_dropout=0.1)


def test_adapters_of_other_models(tmp_path: Path) -> None:
    small_adapted().save_pretrained(str(tmp_path))
    for other in (small("d4"), small(fields=6)):
        expected = other(X)
        with raises("adapter.other_model"):
            adapters.load(other, tmp_path)
        assert torch.equal(other(X), expected)
        assert not any(isinstance(module, ConvolutionalLora) for module in other.modules())
    with raises("adapter.other_model"):
        adapters.load(timm.create_model("test_efficientnet"), tmp_path)


def test_another_basis_is_refused(tmp_path: Path) -> None:
    model = small_adapted()
    factor = model.base_model.model.stages[0].attn.q.lora_A["default"]
    factor.get_extra_state = lambda: torch.tensor([[7]])
    model.save_pretrained(str(tmp_path))
    with raises("weights.basis"):
        adapters.load(small(), tmp_path)


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*adapter_config.json"):
        adapters.load(small(), tmp_path)
    small_adapted().save_pretrained(str(tmp_path))
    weights, config = tmp_path / "adapter_model.safetensors", tmp_path / "adapter_config.json"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with raises("weights.damaged"):
        adapters.load(small(), tmp_path)
    weights.write_bytes(content)
    written = json.loads(config.read_text())
    config.write_text(json.dumps({**written, "r": 3}))
    with raises("adapter.rows"):
        adapters.load(small(), tmp_path)
    config.write_text("{")
    with raises("weights.damaged_json"):
        adapters.load(small(), tmp_path)
