"""Sizes, budgets and wrong arguments of the registered models; tests/_utils/test_options.py has the types of options."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from gcsa._utils.errors import UserError
from gcsa.layers import SteerableConv2d
from gcsa.models.backbone import warn_of_inexact
from gcsa.models.create import TimmOptions, create_model, options_of
from tests.errors import raises

NO_SUCH = "gcsa_tiny_c8"
NAMES = timm.list_models(["gcsa*", "gcnn*", "gsa*", "z2sa*"])


def parameters(name: str, **kwargs: Any) -> int:
    """Counted on the meta device, which takes no memory."""
    return sum(p.numel() for p in timm.create_model(name, device="meta", **kwargs).parameters())


def test_every_model_has_options() -> None:
    assert all(options_of(name) is not TimmOptions for name in NAMES)
    assert len(NAMES) == 18


@pytest.mark.parametrize("name", NAMES)
def test_the_group_is_an_option(name: str) -> None:
    model = timm.create_model(name, device="meta", group="d2")
    groups = [{m.group.name for m in part.modules() if isinstance(m, SteerableConv2d)} for part in model.children()]
    scalar = model.feature_kind == "image"  # scalar fields behind the stem are of the trivial group
    assert model.group.name == "d2"
    assert set().union(*groups) == ({"d2", "c1"} if scalar else {"d2"})


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("gcsa_tiny", 50e3, 100e3),
        ("gcsa_small", 0.3e6, 2e6),
        ("gcsa_base", 18e6, 25e6),
        ("gcsa_hybrid_tiny", 50e3, 100e3),
        ("gcsa_hybrid_small", 0.1e6, 2e6),
        ("gcnn_tiny", 50e3, 100e3),
        ("gcnn_small", 0.3e6, 2e6),
        ("gcsa_pyramid_small", 8e6, 16e6),
        ("gcsa_pooled_small", 0.3e6, 2e6),
        ("gsa_tiny", 20e3, 100e3),
        ("gsa_small", 50e3, 2e6),
    ],
)
def test_parameter_budgets(name: str, low: float, high: float) -> None:
    assert low < parameters(name) <= high
    if name not in ("gcsa_hybrid_small", "gcsa_pyramid_small"):
        counts = [parameters(name, group=group) for group in ("c4", "c8", "d4", "d8")]
        assert max(counts) < 1.3 * min(counts)
    if name in ("gcsa_tiny", "gcsa_small"):  # and the plain baseline
        assert parameters(name, group="c1") == pytest.approx(parameters(name), rel=0.1)
    if name == "gsa_tiny":
        assert parameters("z2sa_tiny") == pytest.approx(parameters(name), rel=0.2)


@pytest.mark.parametrize(
    ("name", "size", "named"),
    [
        ("gcsa_tiny", (28, 30), "28 x 30 .*multiples of 4; resize 30 to 28 or 32$"),
        ("gcsa_small", (5, 96), "multiples of 8; resize 5 to 8$"),
        ("gcsa_small", (0, 96), "resize 0 to 8$"),
        ("gcsa_pyramid_tiny", (224, 225), "multiples of 32; resize 225 to 224 or 256$"),
    ],
)
def test_inexact_image_size_names_the_nearest(name: str, size: tuple[int, int], named: str) -> None:
    model = timm.create_model(name)
    x = torch.zeros(1, model.in_chans, *size)
    for call in (lambda: model.check_input_size(*size), lambda: model(x), lambda: model.forward_intermediates(x)):
        with pytest.raises(UserError, match=named):
            call()
    if min(size) > 0:
        with pytest.raises(UserError, match=named):
            timm.create_model(name, img_size=size)


TINY = [
    (dict(group="c0"), "group"),
    (dict(fields=12, num_heads=5), "num_heads"),
    (dict(num_heads=0), "num_heads"),
    (dict(depth=0), "depth"),
    (dict(fields=0), "fields"),
    (dict(in_chans=0), "in_chans"),
    (dict(num_classes=-1), "num_classes"),
    (dict(attention="quadratic"), "attention"),
    (dict(kernel_size=4), "kernel_size"),
    (dict(radius="3"), "radius"),
    (dict(attention="linear", radius=2), "attention.no_effect"),
    (dict(num_random_features=8), "attention.no_effect"),
    (dict(kv_stride=2, radius=2), "radius.kv_stride"),
    (dict(global_pool="token"), "global_pool"),
    (dict(global_pool=""), "global_pool.classes"),
    (dict(padding_mode="same"), "padding_mode"),
    (dict(stem_strides=(2, 0)), "stem_strides"),
    (dict(drop_rate=1), "drop_rate"),
    (dict(attn_drop_rate=1), "attn_drop_rate"),
    (dict(attention="linear", attn_drop_rate=0.1), "attention.no_effect"),
    (dict(layer_scale=-1e-4), "layer_scale"),
    (dict(mlp_ratio=0.01), "mlp_ratio"),
    (dict(radius=100, img_size=28), "radius.too_large"),
    (dict(radius=3, padding_mode="circular", img_size=24), "radius.wraps"),
    (dict(kv_stride=2, img_size=28), "input.size"),
    (dict(img_size=(28, 28, 1)), "img_size"),
]
PYRAMID = [
    (dict(depths=(1, 1, 1, -1)), "depths"),
    (dict(depths=(1, 1, 1)), "pyramid.stages"),
    (dict(num_heads=(1, 2, 4, 7)), "num_heads"),
    (dict(radii=(3, 3, "most", "all")), "radii"),
    (dict(radii=(60, 3, "all", "all"), img_size=224), "radius.too_large"),
    (dict(output_stride=16), "output_stride"),
]
GCNN = [
    (dict(depth=0), "depth"),
    (dict(kernel_size=4), "kernel_size"),
    (dict(img_size=30), "input.size"),
    (dict(feilds=8), "option.unknown"),
    (dict(attention="linear"), "option.unknown"),
]
GSA = [
    (dict(encoding="absolute"), "encoding"),
    (dict(num_heads=3), "num_heads"),
    (dict(lift_heads=5), "num_heads"),
    (dict(lift_radius=40, img_size=28), "radius.too_large"),
    (dict(radius=9, img_size=28), "radius.too_large"),
    (dict(img_size=30), "input.size"),
]
HYBRID: list[tuple[dict[str, Any], str]] = [(dict(conv_depth=-1), "conv_depth")]
BAD = {"gcsa_tiny": TINY, "gcsa_hybrid_tiny": HYBRID, "gcsa_pyramid_tiny": PYRAMID, "gcnn_tiny": GCNN, "gsa_tiny": GSA}


@pytest.mark.parametrize(("name", "options", "key"), [(name, *case) for name, cases in BAD.items() for case in cases])
def test_bad_arguments(name: str, options: dict[str, Any], key: str) -> None:
    with raises(key):
        create_model(name, **options)


@pytest.mark.parametrize("name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcsa_pooled_small", "gcnn_tiny", "gsa_tiny"])
def test_a_misspelt_argument_of_timm_is_named(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} takes no feilds=: choose from fields"):
        timm.create_model(name, feilds=8)


def test_options_are_checked_for_the_model_before_it_is_made() -> None:
    for name, options in (("resnet18", dict(fields=3)), ("gcsa_tiny", dict(patch_size=3))):
        with raises("option.unknown"):
            create_model(name, **options)
    with raises("option.unknown") as error:
        create_model("resnet18", fields=3)
    assert "patch_size" not in str(error.value)  # which a ResNet does not take either
    with raises("model.unknown"):
        create_model(NO_SUCH)


def test_a_pyramid_of_linear_attention_has_no_neighbourhoods() -> None:
    sizes = dict(depths=(1, 1, 1), fields=(2, 4, 8), num_heads=(1, 1, 1))
    model = timm.create_model("gcsa_pyramid_tiny", attention="linear", **sizes)
    assert model(torch.randn(1, 3, 16, 16)).shape == (1, 1000)


def test_a_radius_larger_than_the_map_is_refused_before_anything_is_allocated() -> None:
    """51 GB, were the meta device not free."""
    model = timm.create_model("gcsa_tiny", attention="group", radius=100, device="meta")
    for call in (lambda: model(torch.empty(1, 1, 28, 28, device="meta")), lambda: model.check_input_size(28, 28)):
        with raises("radius.too_large"):
            call()


def test_values_that_timm_does_not_drop() -> None:
    """timm leaves out arguments that are None, which keeps the default of the size; these say what None would."""
    for name, options in (("gsa_small", {}), ("gcsa_tiny", dict(attention="group"))):
        everywhere = timm.create_model(name, radius="all", **options)
        assert {m.radius for m in everywhere.stages.modules() if hasattr(m, "radius")} <= {None, -1}
    assert timm.create_model("gsa_small", radius=None).stages[0].attn.radius == 2
    unscaled = timm.create_model("gcsa_pyramid_tiny", layer_scale=0, radii=(2, "all", None, 0), device="meta")
    assert [stage[-1].attn.attend.radius for stage in unscaled.stages] == [2, None, None, 0]
    assert not any("scale" in name for name, _ in unscaled.named_parameters())
    assert any("scale" in name for name, _ in timm.create_model("gcsa_pyramid_tiny", device="meta").named_parameters())


@pytest.mark.parametrize("name", ["gcsa_tiny", "gcsa_linear_tiny", "gcsa_pyramid_tiny", "gcnn_tiny", "gsa_tiny"])
def test_no_images_give_no_logits(name: str) -> None:
    model = timm.create_model(name, num_classes=5)
    x = torch.zeros(0, model.in_chans, 64, 64)
    for mode in (True, False):
        assert model.train(mode)(x).shape == (0, 5)


@pytest.mark.parametrize("name", NAMES)
def test_entry_points_can_be_found_in_their_file(name: str) -> None:
    """As in timm: by an editor, by grep, and with a sentence of help."""
    entry_point = timm.model_entrypoint(name)
    found = re.search(r"gcsa\.models\.baselines\.\w+", entry_point.__doc__)  # which names where a baseline is
    source = Path(inspect.getsourcefile(import_module(found[0]) if found else entry_point)).read_text()
    registered = "" if found else "@register_model\n"
    assert f"{registered}def {name}(pretrained: bool = False, **kwargs: Any)" in source


@pytest.mark.parametrize("group", ["d6", "c3", "c1", "c2", "c4", "c8", "d1", "d2", "d4", "d8"])
def test_few_exact_rotations_are_said_once(group: str) -> None:
    """Where a warning is an error, the second model and groups of quarter rotations give none."""
    warn_of_inexact.cache_clear()
    few = dict(depth=1, fields=4, group=group)
    if group in ("d6", "c3"):
        with pytest.warns(UserWarning, match=rf"group={group} is exact on a grid of pixels under.*choose {group[0]}4"):
            timm.create_model("gcsa_tiny", **few)
    assert f"group={group}, exact on a grid of pixels under" in repr(timm.create_model("gcsa_tiny", **few))
