"""Sizes, budgets and wrong arguments of the registered models."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from gcsa.layers.conv import SteerableConv2d
from gcsa.models.backbone import warn_of_turns

NAMES = timm.list_models(["gcsa*", "gcnn*", "gsa*", "z2sa*"])
SIZES = [f"gcsa_{family}{size}" for family in ("", "pyramid_") for size in ("tiny", "small", "base")]
SIZES += [
    "gcsa_linear_tiny",
    "gcsa_linear_small",
    "gcnn_tiny",
    "gcnn_small",
    "gsa_tiny",
    "gsa_small",
    "gcsa_pooled_small",
]
ONE_GROUP = ["gcsa_hybrid_small", "gcsa_hybrid_tiny", "gcsa_ocr_small", "gcsa_ocr_tiny", "z2sa_tiny"]


def parameters(name: str, **kwargs: Any) -> int:
    """Counted on the meta device, which takes no memory."""
    return sum(p.numel() for p in timm.create_model(name, device="meta", **kwargs).parameters())


def test_registered_names() -> None:
    names = [f"{size}{suffix}" for size in SIZES for suffix in ("", "_c4", "_c8", "_d4", "_d8")]
    assert sorted(NAMES) == sorted(names + ONE_GROUP)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_decides_the_group(name: str) -> None:
    model = timm.create_model(name, device="meta")
    layers = model.stem if model.feature_kind == "image" else model  # scalar fields are of the trivial group
    groups = {m.group.name for m in layers.modules() if isinstance(m, SteerableConv2d)}
    assert groups == {model.group.name}
    if layers is not model:
        assert {m.group.name for m in model.stages.modules() if isinstance(m, SteerableConv2d)} == {"c1"}
    if name not in SIZES + ONE_GROUP:
        assert name.endswith("_" + model.group.name)


@pytest.mark.parametrize(
    ("name", "least", "most"),
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
    ],
)
def test_parameter_budgets(name: str, least: float, most: float) -> None:
    assert least < parameters(name) <= most


@pytest.mark.parametrize(
    "size", ["gcsa_tiny", "gcsa_small", "gcsa_base", "gcsa_pooled_small", "gcnn_tiny", "gcnn_small"]
)
def test_groups_have_about_the_same_budget(size: str) -> None:
    counts = [parameters(f"{size}_{group}") for group in ("c4", "c8", "d4", "d8")]
    assert max(counts) < 1.3 * min(counts)


@pytest.mark.parametrize(("name", "small"), [("gcsa_tiny", dict(fields=4, depth=1)), ("gcsa_small", dict(mlp_ratio=1))])
def test_size_by_keyword(name: str, small: dict[str, Any]) -> None:
    assert parameters(name, **small) < parameters(name)


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
        with pytest.raises(ValueError, match=named):
            call()
    with pytest.raises(ValueError, match=named):
        timm.create_model(name, img_size=size)


def test_good_image_size() -> None:
    timm.create_model("gcsa_tiny", img_size=32).check_input_size(8, 12)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (dict(group="c0"), "unknown group 'c0'"),
        (dict(group="x4"), "unknown group 'x4'"),
        (dict(group="c-1"), "unknown group 'c-1'"),
        (dict(fields=12, heads=5), "heads=5 does not divide fields=12"),
        (dict(heads=0), "heads=0"),
        (dict(heads=-2), "heads=-2"),
        (dict(depth=0), "depth="),
        (dict(fields=0), "=0 must be a whole number of at least 1"),
        (dict(in_chans=0), "in_chans="),
        (dict(num_classes=-1), "num_classes=-1"),
        (dict(attention="quadratic"), "choose one of group, spatial, linear"),
        (dict(kernel_size=4), "even kernel_size"),
        (dict(attention="group", radius=-1), "radius=-1 must be"),
        (dict(attention="linear", radius=2), "'linear' does not take"),
        (dict(attention="linear", features=0), "features="),
        (dict(kv_stride=2, radius=2), "set kv_stride=1"),
        (dict(global_pool="token"), "unknown global_pool 'token'"),
        (dict(proj_drop_rate=1.5), "=1.5 must be a finite number of at least 0 and below 1"),
        (dict(padding_mode="same"), "zeros or circular"),
        (dict(stem_strides=(2, 0)), r"stem_strides=\(2, 0\)"),
        (dict(stem_strides=()), "stem_strides="),
        (dict(group="c100000"), "1 to 64 rotations, not 100000"),
        (dict(fields=8.0), r"fields=8\.0"),
        (dict(fields=True), "fields=true"),
        (dict(depth="3"), "depth=3"),
        (dict(heads=1.5), r"heads=1\.5"),
        (dict(heads="2"), "heads=2"),
        (dict(heads=True), "heads=true"),
        (dict(kernel_size=99), "kernel_size must be 32 or less, not 99"),
        (dict(stem_strides=2), "stem_strides=2"),
        (dict(stem_strides=(2.0, 2)), "stem_strides="),
        (dict(head_fields=-1), "head_fields=-1"),
        (dict(drop_rate=-0.1), r"drop_rate=-0\.1"),
        (dict(drop_rate=1), "drop_rate=1"),
        (dict(drop_rate=float("nan")), "drop_rate=nan"),
        (dict(drop_path_rate=2), "drop_path_rate=2"),
        (dict(drop_path_rate="0.1"), r"drop_path_rate=0\.1"),
        (dict(proj_drop_rate=-1), "proj_drop=-1"),
        (dict(layer_scale=-1e-4), "layer_scale=-0.0001"),
        (dict(mlp_ratio=0), "mlp_ratio=0"),
        (dict(mlp_ratio=0.01), r"mlp_ratio=0\.01 of 12 fields leaves none: use 0\.09 or more"),
        (dict(radius="3"), "radius='3' must be"),
        (dict(radius=100, img_size=28), "radius 100 is larger than a map of 7 x 7 positions: use at most 6, or 'all'"),
        (
            dict(attention="group", radius=3, padding_mode="circular", img_size=24),
            "images of 24 x 24, 4 pixels a position: radius 3 wraps round a 6 x 6 map",
        ),
        (dict(kv_stride=2, img_size=28), "images of 28 x 28, 4 pixels a position: .* 7 x 7 .*: use a size of 6 or 8"),
        (dict(global_pool=""), "which has no classes: set num_classes=0, not 10"),
        (dict(num_classes=2.5), r"num_classes=2\.5"),
        (dict(img_size="28"), "img_size=28"),
        (dict(img_size=(28, 28, 1)), r"img_size must be one number or a height and a width, not \(28, 28, 1\)"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        timm.create_model("gcsa_tiny", **arguments)


@pytest.mark.parametrize("name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcsa_pooled_small", "gcnn_tiny", "gsa_tiny"])
def test_a_misspelt_argument_is_named(name: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'feilds'"):
        timm.create_model(name, feilds=8)


@pytest.mark.parametrize("name", ["gcsa_tiny", "gcsa_small"])
def test_the_plain_baseline_has_a_like_budget(name: str) -> None:
    assert parameters(name, group="c1") == pytest.approx(parameters(name), rel=0.1)
    assert parameters("gcsa_tiny", group="c1") < 100e3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (dict(depth=0), "depth=0"),
        (dict(fields=0), "=0 must be a whole number of at least 1"),
        (dict(kernel_size=4), "even kernel_size"),
        (dict(group="x4"), "unknown group 'x4'"),
        (dict(proj_drop_rate=1.5), "=1.5 must be a finite number of at least 0 and below 1"),
        (dict(padding_mode="same"), "zeros or circular"),
        (dict(img_size=30), "resize 30 to 28 or 32"),
    ],
)
def test_bad_arguments_of_the_convolutional_network(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        timm.create_model("gcnn_tiny", **arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (dict(depths=2), "depths=2"),
        (dict(depths=(1, 1, 1, -1)), r"depths=\(1, 1, 1, -1\)"),
        (dict(fields=(8, 16, 32.0, 64)), "fields="),
        (dict(heads="1248"), "heads=1248"),
        (dict(radii=(3, 3, "most", "all")), "radius='most' must be"),
        (dict(radii=(60, 3, "all", "all"), img_size=224), "radius 60 is larger than a map of 56 x 56 positions"),
        (dict(drop_path_rate=1), "drop_path_rate=1"),
    ],
)
def test_bad_arguments_of_the_pyramid(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        timm.create_model("gcsa_pyramid_tiny", **arguments)


def test_a_pyramid_of_linear_attention_has_no_neighbourhoods() -> None:
    model = timm.create_model(
        "gcsa_pyramid_tiny", attention="linear", depths=(1, 1, 1), fields=(2, 4, 8), heads=(1, 1, 1)
    )
    assert model(torch.randn(1, 3, 16, 16)).shape == (1, 1000)


def test_pyramid_needs_an_entry_for_each_stage() -> None:
    with pytest.raises(ValueError, match="one entry a stage each, not 4, 3, 4 and 4"):
        timm.create_model("gcsa_pyramid_tiny", depths=(1, 1, 1))


def test_unknown_model() -> None:
    with pytest.raises(RuntimeError, match="Unknown model"):
        timm.create_model("gcsa_tiny_c5")


def test_a_radius_larger_than_the_map_is_refused_before_anything_is_allocated() -> None:
    """51 GB, were the meta device not free."""
    model = timm.create_model("gcsa_tiny", attention="group", radius=100, device="meta")
    for call in (
        lambda: model(torch.empty(1, 1, 28, 28, device="meta")),
        lambda: model.check_input_size(28, 28),
    ):
        with pytest.raises(ValueError, match="radius 100 is larger than a map of 7 x 7 positions: use at most 6"):
            call()


def test_values_that_timm_does_not_drop() -> None:
    """timm leaves out arguments that are None, which keeps the default of the size; these say what None would."""
    for name, options in (("gsa_small", {}), ("gcsa_tiny", dict(attention="group"))):
        everywhere = timm.create_model(name, radius="all", **options)
        assert {m.radius for m in everywhere.stages.modules() if hasattr(m, "radius")} <= {None, -1}
    assert timm.create_model("gsa_small", radius=None).stages[0].attn.radius == 2
    unscaled = timm.create_model("gcsa_pyramid_tiny", layer_scale=0, radii=(2, "all", None, "all"), device="meta")
    assert [stage[-1].attn.attend.radius for stage in unscaled.stages] == [2, None, None, None]
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
    source = Path(inspect.getsourcefile(entry_point)).read_text()
    assert f"@register_model\ndef {name}(pretrained: bool = False, **kwargs: Any)" in source
    assert entry_point.__doc__


@pytest.mark.parametrize(
    ("group", "words"), [("d6", "half turns and the left-right and up-down mirrors"), ("c3", "nothing")]
)
def test_few_exact_turns_are_said_once(group: str, words: str) -> None:
    warn_of_turns.cache_clear()
    with pytest.warns(
        UserWarning, match=rf"group={group} is exact on a grid of pixels under {words}.*choose {group[0]}4"
    ):
        model = timm.create_model("gcsa_tiny", depth=1, fields=4, group=group)
    assert f"group={group}, exact on a grid of pixels under {words}" in repr(model)
    timm.create_model("gcsa_tiny", depth=1, fields=4, group=group)  # where a warning is an error


@pytest.mark.parametrize("group", ["c1", "c2", "c4", "c8", "d1", "d2", "d4", "d8"])
def test_quarter_turns_need_no_warning(group: str) -> None:
    warn_of_turns.cache_clear()
    assert "exact on a grid of pixels under" in repr(timm.create_model("gcsa_tiny", depth=1, fields=4, group=group))
