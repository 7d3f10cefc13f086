"""Weights and classifiers as timm handles them: folders, copies, averages, new classes, the meta device."""

import copy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models import load_checkpoint, save_for_hf
from timm.models._manipulate import reinit_non_persistent_buffers
from timm.utils import ModelEmaV2, ModelEmaV3
from torch import nn

from gcsa.layers.steerable import SteerableConv2d
from gcsa.testing import relative_error

from .test_timm import BARE, create, image, shallow, small_models


@small_models
@pytest.mark.parametrize("safe", [True, False])
def test_local_dir_round_trip(name: str, safe: bool, tmp_path: Path) -> None:
    arguments = dict(group="d2", mlp_ratio=1.5, num_classes=7, in_chans=2)
    if name != "gcsa_pyramid_tiny":
        arguments |= dict(fields=6, heads=3, attention="group", radius=1, stem_strides=(2,))
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_linear_attention_in_mixed_precision(dtype: torch.dtype) -> None:
    model = create("gcsa_linear_tiny").train()
    with torch.no_grad():
        for stage in model.stages:  # peaked attention
            stage.attn.q.weight *= 100
            stage.attn.k.weight *= 100
    with torch.autocast("cpu", dtype=dtype):
        out = model(image(model, 2))
    assert out.isfinite().all()
    out.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("ema_class", [ModelEmaV2, ModelEmaV3])
def test_copies_and_averages(ema_class: type[nn.Module]) -> None:
    model = create("gcsa_tiny_d8")
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
    loaded = create("gcsa_tiny_d8")
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


@pytest.mark.parametrize("safe", [True, False])
def test_damaged_weights(safe: bool, tmp_path: Path) -> None:
    model = create("gcsa_tiny")
    save_for_hf(model, tmp_path, safe_serialization=safe)
    (file,) = (path for path in tmp_path.iterdir() if path.suffix != ".json")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(Exception, match=r"(?i)incomplete|metadata|zip archive|corrupt"):
        create(f"local-dir:{tmp_path}", pretrained=True)


def test_state_dict_is_the_same_in_train_and_eval() -> None:
    model = timm.create_model("gcsa_tiny")
    assert list(model.train().state_dict()) == list(model.eval().state_dict())


@pytest.mark.parametrize(
    "name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcnn_tiny", "gsa_tiny", "performer_tiny", "vgg16_small"]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_new_classifier_is_as_the_model(name: str, dtype: torch.dtype) -> None:
    model = timm.create_model(name, **({} if name in ("performer_tiny", "vgg16_small") else shallow(name))).to(dtype)
    model.reset_classifier(5)
    model.eval()
    x = torch.randn(1, model.in_chans, 64, 64, dtype=dtype)
    assert model(x).shape == (1, 5)
    assert model(x).dtype == dtype
    with torch.device("meta"):
        model.to("meta").reset_classifier(3)
    assert model.get_classifier().weight.is_meta


@pytest.mark.parametrize(
    "name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcnn_tiny", "gsa_tiny", "performer_tiny", "alexnet_small"]
)
def test_an_unpooled_map_has_no_classes(name: str) -> None:
    """As in timm, whose create_classifier asserts it."""
    named = "global_pool='' leaves a map, which has no classes: set num_classes=0, not 4"
    with pytest.raises(ValueError, match=named):
        timm.create_model(name, num_classes=4, global_pool="")
    model = timm.create_model(name, num_classes=6).eval()
    with pytest.raises(ValueError, match=named):
        model.reset_classifier(4, "")
    assert model.num_classes == model.get_classifier().out_features == 6
    x = torch.randn(1, model.in_chans, 64, 64)
    assert model(x).shape == (1, 6)
    model.reset_classifier(0, "")
    assert torch.equal(model(x), model.forward_features(x))
    with pytest.raises(ValueError, match=named):
        model.reset_classifier(4)


@pytest.mark.parametrize("name", [*BARE, "performer_tiny", "linformer_tiny", "alexnet_small"])
def test_from_the_meta_device(name: str) -> None:
    """What `to_empty` leaves in tables that no state dict holds is filled with the weights, and by timm's own hook."""
    options = {} if name in ("performer_tiny", "linformer_tiny", "alexnet_small") else shallow(name)
    source = create(name, **options)
    x = torch.randn(1, *source.default_cfg["input_size"]) if "tiny" in name else torch.randn(1, source.in_chans, 64, 64)
    expected = source(x)
    model = copy.deepcopy(source).to("meta").to_empty(device="cpu")
    for buffer in model.buffers():
        buffer.fill_(float("nan") if buffer.is_floating_point() else 0)
    model.load_state_dict(source.state_dict())
    assert torch.equal(model(x), expected)
    assigned = copy.deepcopy(source).to("meta")
    assigned.load_state_dict(source.state_dict(), assign=True)
    assert torch.allclose(assigned(x), expected, atol=1e-5)
    for name, buffer in model.named_buffers():
        if name not in source.state_dict():
            buffer.fill_(float("nan"))
    reinit_non_persistent_buffers(model)
    assert torch.equal(model(x), expected)


def test_a_state_dict_of_garbage_is_refused() -> None:
    """Tables that were never filled give no fingerprint that another model would trust."""
    model = create("gcsa_tiny")
    for layer in model.modules():
        if isinstance(layer, SteerableConv2d):
            layer.tables.zero_()
    with pytest.raises(ValueError, match="another kernel basis"):
        create("gcsa_tiny").load_state_dict(model.state_dict())
