"""What timm expects of a model: the checks that its own tests/test_models.py makes, for every registered name."""

import copy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.layers import set_scriptable
from timm.models import FeatureInfo, group_parameters, load_checkpoint, save_for_hf
from timm.models._features_fx import get_notrace_functions, get_notrace_modules
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from timm.utils import ModelEmaV2, ModelEmaV3
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor

from gcsa.layers.layout import to_nchw
from gcsa.models.backbone import Backbone, blocks
from gcsa.testing import relative_error
from tests.errors import raises

NAMES = timm.list_models(["gcsa*", "gcnn*", "gsa*", "z2sa*"])
SMALL = ["gcsa_tiny", "gcsa_small", "gcsa_pyramid_tiny"]
KINDS = [name for name in NAMES if name not in ("gcsa_pyramid_small", "gcsa_pyramid_base", "gcsa_ocr_small")]
"""Without those that differ from others in nothing but numbers of fields and blocks."""
every_name = pytest.mark.parametrize("name", NAMES)
every_kind = pytest.mark.parametrize("name", KINDS)
small_models = pytest.mark.parametrize("name", SMALL)
torchscript = pytest.mark.filterwarnings("ignore:.*torch.jit")  # deprecated by torch, still part of timm's contract


def create(name: str, **kwargs: Any) -> Backbone:
    return timm.create_model(name, **kwargs).eval()


def shallow(name: str) -> dict[str, Any]:
    """Fewer blocks and stages, which are alike; the baselines are small."""
    if "pyramid" in name:
        return dict(fields=(8, 12), depths=(1, 1), num_heads=(1, 2), radii=(1, "all"))
    return dict(depth=1) if name.startswith(("gc", "gs", "z2")) else {}


def image(model: nn.Module, batch: int = 1) -> Tensor:
    """Small, for speed: two positions a side at the last stage and at least 16 pixels."""
    size = max(2 * model.feature_info[-1]["reduction"], 16)
    return torch.randn(batch, model.default_cfg["input_size"][0], size, size)


def traced(model: nn.Module) -> nn.Module:
    """The model as timm's feature extraction traces it with torch.fx, once for each mode."""
    settings = dict(
        leaf_modules=get_notrace_modules(), autowrap_functions=get_notrace_functions(), param_shapes_constant=True
    )
    return create_feature_extractor(model, return_nodes=["head.fc"], tracer_kwargs=settings)


def assert_all_gradients(model: nn.Module, out: Tensor) -> None:
    assert out.shape[-1] == 42
    assert out.isfinite().all()
    out.mean().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@every_kind
def test_forward_and_backward(name: str) -> None:
    model = create(name, **shallow(name))
    x = image(model)
    with torch.no_grad():
        out = model(x)
        model.set_grad_checkpointing()
        assert torch.allclose(model(x), out, rtol=1e-4, atol=1e-5)
    assert out.shape == (1, model.num_classes or model.head_hidden_size)  # encoders of text have no classes
    assert out.isfinite().all()
    model.set_grad_checkpointing(False)
    model.reset_classifier(42)
    assert_all_gradients(model.train(), model(image(model, 2)))


@every_kind
@torchscript
def test_torchscript_and_fx(name: str) -> None:
    model = create(name, num_classes=42, **shallow(name))
    x = image(model, 2)
    fx = traced(model)
    with set_scriptable(True):
        scripted, fx_scripted = torch.jit.script(model), torch.jit.script(fx)
    with torch.no_grad():
        out = model(x)
        assert torch.equal(fx(x)["head.fc"], out)
        assert torch.allclose(scripted(x), out, rtol=1e-4, atol=1e-5)  # TorchScript shares no expansion
        assert torch.allclose(fx_scripted(x)["head.fc"], out, rtol=1e-4, atol=1e-5)
    assert_all_gradients(fx.train(), fx(x)["head.fc"])
    assert sum(p.numel() for p in fx.parameters()) == sum(p.numel() for p in model.parameters())


@every_name
def test_default_cfg(name: str) -> None:
    """Shapes at the size of the cfg, on the meta device, where they cost nothing."""
    model = create(name, device="meta")
    cfg = model.default_cfg
    x = torch.empty(2, *cfg["input_size"], device="meta")
    pool = tuple(cfg["pool_size"])
    features = model.forward_features(x)
    assert features.shape == (2, model.num_features, *pool)
    assert model.forward_head(features, pre_logits=True).shape == (2, model.head_hidden_size)
    assert model.num_classes == cfg["num_classes"]
    named = [cfg["first_conv"], *([cfg["classifier"]] if cfg["num_classes"] else [])]
    assert {f"{layer}.weight" for layer in named} <= model.state_dict().keys()
    assert cfg["architecture"] == name

    model.reset_classifier(0)
    assert model.num_classes == 0
    assert model.forward_head(features).shape == (2, model.head_hidden_size)
    model.reset_classifier(0, "")
    assert model.forward_head(features).shape == (2, model.num_features, *pool)
    model.reset_classifier(7, "max")
    assert model.forward_head(features).shape == (2, 7)
    assert model.get_classifier().weight.shape == (7, model.head_hidden_size)
    bare = create(name, num_classes=0, global_pool="", device="meta")
    assert bare.forward_head(features).shape == (2, model.num_features, *pool)


@every_name
def test_features_only(name: str) -> None:
    model = timm.create_model(name, features_only=True, device="meta").eval()
    channels, reductions = model.feature_info.channels(), model.feature_info.reduction()
    assert channels
    size = 4 * reductions[-1]
    features = model(torch.empty(1, model.default_cfg["input_size"][0], size, size, device="meta"))
    expected = [(1, c, size // r, size // r) for c, r in zip(channels, reductions, strict=True)]
    assert [tuple(f.shape) for f in features] == expected


@every_name
def test_every_parameter_of_feature_maps_gets_a_gradient(name: str) -> None:
    """Or distributed training stops at its second step."""
    model = timm.create_model(name, features_only=True, **shallow(name))
    sum(found.sum() for found in model(image(create(name)))).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


def test_a_pruned_pyramid_takes_multiples_of_its_own_stride() -> None:
    model = create("gcsa_pyramid_tiny", features_only=True, out_indices=(0, 1))
    assert [found.shape[-1] for found in model(torch.randn(1, 3, 40, 40))] == [10, 5]
    with raises("input.size"):
        model(torch.randn(1, 3, 36, 40))


@small_models
def test_gradients_are_the_same_with_checkpointing(name: str) -> None:
    model = timm.create_model(name, num_classes=3, **shallow(name))
    x = image(model)
    out = model(x)
    out.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.set_grad_checkpointing()
    again = model(x)
    again.sum().backward()
    assert model.grad_checkpointing
    assert torch.allclose(again, out, rtol=1e-4, atol=1e-5)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(p.grad, gradient, rtol=1e-3, atol=1e-5)


@small_models
def test_checkpointing_computes_each_block_of_the_intermediates_again(name: str) -> None:
    model = timm.create_model(name, num_classes=3, **shallow(name))
    model.set_grad_checkpointing()
    ran = []
    for block in blocks(model.stages):
        block.register_forward_pre_hook(lambda *_: ran.append(1))
    x = image(model).requires_grad_()
    final, _ = model.forward_intermediates(x)
    forward = len(ran)
    final.sum().backward()
    assert len(ran) == 2 * forward
    assert torch.allclose(final, model.forward_features(x), atol=1e-6)


@small_models
def test_forward_intermediates(name: str) -> None:
    model = create(name)
    x = image(model)
    info = FeatureInfo(model.feature_info, tuple(range(len(model.feature_info))))
    with torch.no_grad():
        final, stages = model.forward_intermediates(x)
        assert torch.allclose(final, model.forward_features(x), atol=1e-6)
        assert [s.shape[1] for s in stages] == info.channels()
        assert [x.shape[2] // s.shape[2] for s in stages] == info.reduction()
        only = model.forward_intermediates(x, indices=[0, 2], intermediates_only=True, stop_early=True)
        assert all(torch.equal(a, b) for a, b in zip(only, (stages[0], stages[2]), strict=True))
        last = model.forward_intermediates(x, indices=1, intermediates_only=True, norm=True)
        assert torch.equal(last[0], final)
        assert not torch.allclose(stages[-1], final)


@small_models
def test_forward_intermediates_stops_early(name: str) -> None:
    """The final features are then those of the last stage run, normalised only where the norm fits its width."""
    model = create(name)
    ran = []
    model.stages[2].register_forward_hook(lambda *_: ran.append(2))
    final, (stage,) = model.forward_intermediates(image(model), indices=[1], stop_early=True)
    assert ran == []
    assert final.shape == stage.shape


def test_forward_intermediates_refuses_other_formats() -> None:
    model = create("gcsa_tiny")
    with raises("output_fmt"):
        model.forward_intermediates(image(model), output_fmt="NLC")


@small_models
def test_prune_intermediate_layers(name: str) -> None:
    model = create(name)
    x = image(model)
    whole = model.forward_intermediates(x, indices=[0, 1], intermediates_only=True)
    assert model.prune_intermediate_layers([0, 1]) == [0, 1]
    assert len(model.stages) == 2
    assert model.num_classes == 0
    pruned = model.forward_intermediates(x, indices=[0, 1], intermediates_only=True)
    assert all(torch.equal(a, b) for a, b in zip(whole, pruned, strict=True))
    assert torch.equal(model(x), model.forward_features(x))
    model.reset_classifier(0, "")
    with raises("head.missing"):
        model.reset_classifier(2, "avg")


@small_models
def test_prune_norm(name: str) -> None:
    model = create(name)
    model.prune_intermediate_layers([0], prune_norm=True, prune_head=False)
    assert isinstance(model.norm, nn.Identity)
    assert isinstance(model.get_classifier(), nn.Linear)


@small_models
@pytest.mark.parametrize("feature_cls", ["getter", "fx"])
@torchscript
def test_feature_classes_agree(name: str, feature_cls: str) -> None:
    """Of timm's two, the one by torch.fx can be scripted."""
    options = shallow(name)
    torch.manual_seed(1)
    model = create(name, **options)
    torch.manual_seed(1)  # the same weights
    with set_scriptable(feature_cls == "fx"):
        features = create(name, features_only=True, feature_cls=feature_cls, **options)
        scripted = torch.jit.script(features) if feature_cls == "fx" else features
    x = image(model)
    expected = model.forward_intermediates(x, intermediates_only=True)
    for found in (features(x), scripted(x)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            # torch.fx sees the layout (B, h, w, N, C) inside the model
            assert torch.allclose(a if feature_cls == "getter" else to_nchw(a), b, atol=1e-5)


@every_name
def test_parameter_groups(name: str) -> None:
    model = create(name, num_classes=3, device="meta")
    names = [n for n, _ in model.named_parameters()]
    grouped = group_parameters(model, model.group_matcher())
    assert sorted(n for group in grouped.values() for n in group) == sorted(names)
    assert all(n.startswith("stem") for n in grouped[0])
    layers = param_groups_layer_decay(model, layer_decay=0.5)
    assert min(group["lr_scale"] for group in layers) == pytest.approx(0.5 ** (len(grouped) - 1))
    assert max(group["lr_scale"] for group in layers) == 1
    undecayed, decayed = param_groups_weight_decay(model, 0.1, no_weight_decay_list=model.no_weight_decay())
    assert {p.ndim for p in undecayed["params"]} == {1}
    assert {p.ndim for p in decayed["params"]} == {2, 4}


def test_layer_decay_is_of_each_block_unless_coarse() -> None:
    """A pyramid's stages are coarse, its blocks are not, as in Swin; the stem and what is behind the blocks are one more each."""
    model = create("gcsa_pyramid_tiny", depths=(1, 2, 1, 1), device="meta")
    assert [len(group_parameters(model, model.group_matcher(coarse))) for coarse in (True, False)] == [4 + 2, 8 + 2]


@small_models
@pytest.mark.parametrize("safe", [True, False])
def test_local_dir_round_trip(name: str, safe: bool, tmp_path: Path) -> None:
    arguments = dict(group="d2", mlp_ratio=1.5, num_classes=7, in_chans=2)
    if name != "gcsa_pyramid_tiny":
        arguments |= dict(fields=6, num_heads=3, attention="group", radius=1, stem_strides=(2,))
    model = create(name, **arguments)
    save_for_hf(model, tmp_path, model_args=arguments, safe_serialization=safe)
    assert (tmp_path / "config.json").exists()
    assert (tmp_path / "model.safetensors").exists() is safe
    loaded = create(f"local-dir:{tmp_path}", pretrained=True)
    x = torch.randn(1, 2, 64, 64)
    assert loaded.group.name == "d2"
    assert torch.equal(loaded(x), model(x))


@small_models
def test_pretrained_weights_adapt_to_channels_and_classes(name: str, tmp_path: Path) -> None:
    model = create(name, in_chans=3, num_classes=10)
    save_for_hf(model, tmp_path, model_args=dict(in_chans=3, num_classes=10), safe_serialization=True)
    grey = create(f"local-dir:{tmp_path}", pretrained=True, in_chans=1, num_classes=4)
    assert grey.get_classifier().out_features == 4
    x = torch.randn(1, 1, 64, 64)
    # timm adds up the filters of the three colours: grey is an image whose colours are alike
    expected = model.forward_features(x.expand(-1, 3, -1, -1))
    assert torch.allclose(grey.forward_features(x), expected, atol=1e-4)
    assert create(f"local-dir:{tmp_path}", pretrained=True, num_classes=0)(x.expand(-1, 3, -1, -1)).ndim == 2
    file = dict(file=str(tmp_path / "model.safetensors"))
    overlaid = create(name, pretrained=True, pretrained_cfg_overlay=file, in_chans=3, num_classes=10)
    assert torch.equal(overlaid.forward_features(x.expand(-1, 3, -1, -1)), expected)


def test_random_features_are_in_the_checkpoint() -> None:
    """Another draw is another function, so it must travel with the weights."""
    model, other = create("gcsa_linear_tiny"), create("gcsa_linear_tiny")
    x = image(model)
    other.load_state_dict(dict(model.named_parameters()), strict=False)
    assert not torch.allclose(other(x), model(x), atol=1e-5)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("ema_class", [ModelEmaV2, ModelEmaV3])
def test_copies_and_averages(ema_class: type[nn.Module]) -> None:
    model = create("gcsa_tiny", group="d8")
    x = image(model)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    average = ema_class(model, decay=0.5)
    before = model(x)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    moved = model(x)
    assert relative_error(moved, before) > 0.1
    average.update(model)
    halfway = average.module(x)
    assert relative_error(halfway, before) > 0.01
    assert relative_error(halfway, moved) > 0.01
    for _ in range(40):
        average.update(model)
    assert torch.allclose(average.module(x), moved, atol=1e-4)
    loaded = create("gcsa_tiny", group="d8")
    loaded.load_state_dict(average.module.state_dict())
    assert torch.equal(loaded(x), average.module(x))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (dict(depth=2), "Missing key.*stages.2"),
        (dict(fields=8), "size mismatch"),
        (dict(group="d4"), "another kernel basis"),
        (dict(kernel_size=5), "another kernel basis|size mismatch"),
    ],
)
def test_weights_of_another_architecture(other: dict[str, Any], named: str, tmp_path: Path) -> None:
    torch.save(create("gcsa_tiny", **other).state_dict(), tmp_path / "other.pth")
    with pytest.raises((RuntimeError, ValueError), match=f"(?s){named}"):
        load_checkpoint(create("gcsa_tiny"), str(tmp_path / "other.pth"))
