"""Performers and the efficient baselines as timm models: sizes, contract, redrawing, and wrong arguments."""

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.layers import set_scriptable
from timm.models import group_parameters, save_for_hf
from timm.models._features_fx import get_notrace_functions, get_notrace_modules
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor

import gcsa.models.baselines.efficient as baselines
from gcsa.models.baselines.kernelizable import POSITIONS, KernelizableAttention
from tests.errors import raises

PACKAGES = {"linformer_tiny": "linformer", "routing_transformer_tiny": "routing_transformer"}
BASELINES = [
    pytest.param(
        name, {}, marks=pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs {package}")
    )
    for name, package in PACKAGES.items()
]
SMALL = dict(dim=16, depth=2, num_heads=2, patch_size=4, img_size=32)
MODELS = [pytest.param("performer_tiny", dict(position=position), id=position) for position in POSITIONS] + BASELINES
every_model = pytest.mark.parametrize(("name", "options"), MODELS)
positions = pytest.mark.parametrize("position", POSITIONS)
torchscript = pytest.mark.filterwarnings("ignore:.*torch.jit")  # deprecated by torch, still part of timm's contract


def create(name: str = "performer_tiny", **options: Any) -> nn.Module:
    return timm.create_model(name, **(SMALL | options)).eval()


def images(batch: int = 2, in_chans: int = 1) -> Tensor:
    return torch.randn(batch, in_chans, 32, 32)


def projections(model: nn.Module) -> list[Tensor]:
    return [m.projection for m in model.modules() if isinstance(m, KernelizableAttention)]


@pytest.mark.parametrize(
    ("position", "millions"), [("none", 4.7), ("absolute", 4.7), ("relative_s1", 4.7), ("relative_s2", 4.5)]
)
def test_performer_horn_has_the_parameters_of_table_1(position: str, millions: float) -> None:
    model = timm.create_model("performer_horn", position=position)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions
    assert model.embed(torch.zeros(1, 3, 32, 32)).shape == (1, 32, 32, 256)


@every_model
def test_forward_and_backward(name: str, options: dict[str, Any]) -> None:
    model = create(name, num_classes=42, **options).train()
    out = model(images())
    assert out.shape == (2, 42)
    out.square().sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None and "mem_" not in n]
    assert missing == []
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@every_model
def test_head(name: str, options: dict[str, Any]) -> None:
    model, x = create(name, **options), images()
    features = model.forward_features(x)
    assert features.shape == (2, model.num_features, 8, 8)
    assert model.forward_head(features, pre_logits=True).shape == (2, model.head_hidden_size)
    assert torch.equal(model.forward_head(features), model(x))
    assert model.num_classes == 10
    model.reset_classifier(7)
    assert model(x).shape == (2, 7)
    assert model.get_classifier().weight.shape == (7, model.head_hidden_size)
    model.reset_classifier(0)
    assert model(x).shape == (2, model.num_features)
    model.reset_classifier(0, "")
    assert torch.equal(model(x), model.forward_features(x))


@every_model
@pytest.mark.parametrize("in_chans", [1, 3])
def test_round_trips(name: str, options: dict[str, Any], in_chans: int, tmp_path: Path) -> None:
    """Through a state dict and through timm's own folder, random features included."""
    options = SMALL | options | dict(in_chans=in_chans, num_classes=5)
    model, x = create(name, **options), images(in_chans=in_chans)
    out = model(x)
    again = create(name, **options)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x), out)
    assert torch.equal(copy.deepcopy(model)(x), out)
    save_for_hf(model, tmp_path, model_args=options, safe_serialization=True)
    assert torch.equal(timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()(x), out)
    assert list(model.train().state_dict()) == list(model.eval().state_dict())


@every_model
def test_cfg_and_parameter_groups(name: str, options: dict[str, Any]) -> None:
    model = create(name, **options)
    cfg = model.default_cfg
    assert {cfg["classifier"] + ".weight", cfg["first_conv"] + ".weight"} <= model.state_dict().keys()
    assert cfg["architecture"] == name
    groups = group_parameters(model, model.group_matcher())
    names = [n for n, _ in model.named_parameters()]
    assert sorted(n for group in groups.values() for n in group) == sorted(names)
    assert len(groups) == 1 + SMALL["depth"] + 1
    assert all(n.startswith("patch_embed") for n in groups[0])


def test_positions_are_not_decayed() -> None:
    for position, ends in (("relative_s1", {"omegas", "alpha", "beta"}), ("relative_s2", {"w"}), ("none", set())):
        model = create(position=position)
        assert {name.rsplit(".", 1)[1] for name in model.no_weight_decay()} == ends
        decayed = param_groups_weight_decay(model, 0.1, no_weight_decay_list=model.no_weight_decay())[1]["params"]
        kept = [p for n, p in model.named_parameters() if n in model.no_weight_decay()]
        assert not {id(p) for p in kept} & {id(p) for p in decayed}


@positions
@torchscript
def test_torchscript_and_fx(position: str) -> None:
    model, x = create(position=position), images()
    settings = dict(
        leaf_modules=get_notrace_modules(), autowrap_functions=get_notrace_functions(), param_shapes_constant=True
    )
    fx = create_feature_extractor(model, return_nodes=["head"], tracer_kwargs=settings)
    with set_scriptable(True):
        scripted = torch.jit.script(model)
    with torch.no_grad():
        assert torch.equal(fx(x)["head"], model(x))
        assert torch.allclose(scripted(x), model(x), rtol=1e-4, atol=1e-5)


@positions
def test_gradients_are_the_same_with_checkpointing(position: str) -> None:
    """Also at a step that redraws: the blocks are run twice, the step counts once."""
    plain, x = create(position=position, redraw_interval=1).train(), images()
    checkpointed = copy.deepcopy(plain)
    checkpointed.set_grad_checkpointing()
    for model in (plain, checkpointed):
        torch.manual_seed(0)
        model(x).square().sum().backward()
        assert model.steps == 1
    for p, q in zip(plain.parameters(), checkpointed.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, rtol=1e-3, atol=1e-6)


def test_redraws_every_interval_in_training_only() -> None:
    model, x = create(redraw_interval=3), images()
    before = projections(model)
    for _ in range(4):
        model(x)
    assert all(torch.equal(a, b) for a, b in zip(projections(model), before, strict=True))
    model.train()
    changed = []
    for _ in range(7):
        old = projections(model)
        model(x)
        changed.append([not torch.equal(a, b) for a, b in zip(projections(model), old, strict=True)])
    assert changed == [[step in (3, 6)] * 2 for step in range(1, 8)]
    never = create(redraw_interval=0).train()
    before = projections(never)
    never(x)
    assert all(a is b for a, b in zip(projections(never), before, strict=True))


def test_processes_with_other_random_states_redraw_the_same() -> None:
    """Under FSDP2 and DDP each process has a random state of its own; the draw follows from what they share."""
    first = create(redraw_interval=2).train()
    second, other = copy.deepcopy(first), create(redraw_interval=2).train()
    before = projections(first)
    for seed, model in enumerate((first, second, other)):
        torch.manual_seed(seed)
        for _ in range(5):
            torch.rand(seed + 1)
            model(images())
    for a, b, c, old in zip(projections(first), projections(second), projections(other), before, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, old)
        assert not torch.equal(a, c)  # another model, another draw
    assert not torch.equal(*projections(first))  # each layer its own
    once = create(redraw_interval=1).train()
    draws = []
    for _ in range(3):
        once(images())
        draws.append(projections(once)[0])
    assert not torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[1], draws[2])


def train(model: nn.Module, steps: range) -> None:
    """Some steps, each seeded by its number as `StepSeed` does."""
    for step in steps:
        torch.manual_seed(step)
        loss = model(images()).square().sum()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(1e-3 * p.grad)


@pytest.mark.parametrize("middle", [1, 2, 3])
def test_a_resumed_run_redraws_as_a_whole_one(middle: int) -> None:
    whole = create(redraw_interval=2, attn_drop_rate=0.1)
    first = copy.deepcopy(whole).train()
    train(whole.train(), range(5))
    train(first, range(middle))
    first.eval()(images())
    resumed = create(redraw_interval=2, attn_drop_rate=0.1)
    resumed.load_state_dict(first.state_dict())
    train(resumed.train(), range(middle, 5))
    for (key, a), b in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), key


@positions
def test_any_image_size(position: str) -> None:
    model = create(position=position)
    assert model.forward_features(torch.randn(1, 1, 17, 30)).shape == (1, 16, 5, 8)
    assert model(torch.randn(1, 1, 1, 1)).isfinite().all()


def test_only_no_position_ignores_the_order_of_tokens() -> None:
    """With pixels as tokens, mixing them up moves the logits wherever the strategy knows positions."""
    x = torch.randn(2, 1, 10, 8)
    mixed = x.flatten(2)[..., torch.randperm(80)].reshape(x.shape)
    for position in POSITIONS:
        model = create(position=position, patch_size=1)
        same = torch.allclose(model(mixed), model(x), atol=1e-5)
        assert same is (position == "none")


@pytest.mark.parametrize("name", PACKAGES)
def test_missing_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> None:
        raise ModuleNotFoundError(name=package)

    monkeypatch.setattr(baselines.importlib, "import_module", missing)
    with raises("baselines.missing"):
        create(name)


@pytest.mark.skipif(importlib.util.find_spec("routing_transformer") is None, reason="needs routing_transformer")
def test_routing_centres_follow_training_only() -> None:
    model, x = create("routing_transformer_tiny"), images()
    model(x)  # the first batch places them
    means = [b for n, b in model.named_buffers() if n.endswith("means")]
    before = [m.clone() for m in means]
    model(x)
    assert all(torch.equal(a, b) for a, b in zip(means, before, strict=True))
    model.train()(x)
    assert not any(torch.equal(a, b) for a, b in zip(means, before, strict=True))


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("performer_tiny", dict(position="rotary"), "position"),
        ("performer_tiny", dict(position="relative_s1", width=5), "width.odd"),
        ("performer_tiny", dict(position="absolute", dim=18), "dim"),
        ("performer_tiny", dict(redraw_interval=-1), "redraw_interval"),
        ("performer_tiny", dict(drop_rate=1), "drop_rate"),
        ("performer_tiny", dict(mlp_ratio=0.01), "mlp_ratio"),
        ("linformer_tiny", dict(img_size=(28, 28, 28)), "img_size"),
        ("performer_tiny", dict(num_heads=3), "num_heads"),
        ("performer_tiny", dict(global_pool="max"), "global_pool"),
        ("performer_tiny", dict(global_pool=""), "global_pool.classes"),
        ("linformer_tiny", dict(projected=0), "projected"),
        ("linformer_tiny", dict(num_heads=3), "num_heads"),
        ("routing_transformer_tiny", dict(clusters=3), "clusters"),
    ],
)
def test_bad_arguments(name: str, options: dict[str, Any], key: str) -> None:
    with raises(key):
        create(name, **options)


@pytest.mark.parametrize(("name", "options"), BASELINES)
def test_baselines_take_one_size(name: str, options: dict[str, Any]) -> None:
    with raises("input.size"):
        create(name)(torch.zeros(1, 1, 28, 28))
    assert create(name, img_size=16)(torch.zeros(1, 1, 16, 16)).shape == (1, 10)
    with raises("gradient_checkpointing"):
        create(name).set_grad_checkpointing()


@pytest.mark.parametrize(
    "name",
    ["performer_tiny", "performer_horn", "linformer_tiny", "routing_transformer_tiny", "alexnet_small", "vgg16_small"],
)
def test_features_only_is_refused(name: str) -> None:
    with raises("features_only"):
        timm.create_model(name, features_only=True)


def test_no_images() -> None:
    for position in POSITIONS:
        model = create(position=position, num_classes=5)
        assert model(images(0)).shape == model.train()(images(0)).shape == (0, 5)


@pytest.mark.parametrize(("name", "options"), BASELINES)
def test_no_images_for_the_baselines(name: str, options: dict[str, Any]) -> None:
    with raises("input.empty"):
        create(name)(images(0))
