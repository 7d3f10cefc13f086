"""Every registered model, every exact element of its group: the logits stay, the features of each stage move along."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from gcsa.actions import Kind, act
from gcsa.groups import Group
from gcsa.models.backbone import Backbone
from gcsa.testing import assert_equivariant, assert_invariant, randomize, relative_error
from tests.errors import not_equivariant

NAMES = timm.list_models(["gcsa*", "gcnn*", "gsa*", "z2sa*"])
# Fewer stages, blocks and fields, for speed; stem, head, group and kinds of layers are those of the model.
THIN: dict[str, dict[str, Any]] = {
    "gcsa_pyramid": dict(depths=(1, 1), fields=(4, 8), num_heads=(1, 2), radii=(1, "all")),
    "gcsa_pooled": dict(depth=1, fields=4, scalar_fields=8, stem_fields=(4, 4)),
    "gcsa": dict(depth=1, fields=8),
    "gcnn": dict(depth=1, fields=4),
    "gsa": dict(depth=1, fields=4),
    "z2sa": dict(depth=1, fields=4),
}


def create(name: str, **kwargs: Any) -> Backbone:
    return randomize(timm.create_model(name, **kwargs)).eval()


def thin(name: str, **kwargs: Any) -> Backbone:
    return create(name, **next(options for family, options in THIN.items() if name.startswith(family)), **kwargs)


def image(model: Backbone, batch: int = 1) -> Tensor:
    """Two positions a side at the last stage, and at least 16 pixels."""
    size = max(2 * model.size_divisor, 16)
    return torch.randn(batch, model.in_chans, size, size)


def generators(group: Group) -> tuple[int, int]:
    """A rotation and the last element, which make the other exact ones; `errors` has all of them."""
    return group.exact_elements[1], group.exact_elements[-1]


def errors(model: Backbone, x: Tensor) -> dict[str, float]:
    """The largest relative error over the exact elements, of logits, features and each stage, in one forward pass."""
    exact = model.group.exact_elements
    with torch.no_grad():
        features, stages = model.forward_intermediates(torch.cat([act(x, model.group, g, "image") for g in exact]))
        outputs: dict[str, tuple[Tensor, Kind]] = {"logits": (model.forward_head(features), "invariant")}
        outputs["features"] = (features, model.feature_kind)
        kinds: list[Kind] = [*["regular"] * model.stem_levels, *[model.feature_kind] * len(model.stages)]  # type: ignore[list-item]
        outputs |= {f"stage {i}": level for i, level in enumerate(zip(stages, kinds, strict=True))}
    found = {}
    for name, (output, kind) in outputs.items():
        first, *others = output.chunk(len(exact))
        found[name] = max(
            (relative_error(y, act(first, model.group, g, kind)) for y, g in zip(others, exact[1:], strict=True)),
            default=0.0,
        )
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if name != "z2sa_tiny"])  # c1: nothing to turn
def test_every_size(name: str) -> None:
    """As deep and wide as registered."""
    model = create(name)
    found = errors(model, image(model))
    assert len(found) == 2 + len(model.feature_info)
    assert {key: error for key, error in found.items() if not error <= 1e-5} == {}


@pytest.mark.parametrize("group", ["c4", "c8", "d4"])
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_tiny") or "pooled" in name])
def test_every_family_and_group(name: str, group: str) -> None:
    """In train and eval mode, float64 and float32; and with one broken layer, not."""
    model = thin(name, group=group)
    x = image(model)
    assert_equivariant(model, x, group, "image", "invariant", generators(model.group))
    relative = name.startswith(("gsa", "z2sa"))
    broken: Any = model.stem.get_submodule("attn.spatial" if relative else "convs.0")
    (broken.matrices if relative else broken.tables)[1] *= 1.5
    with not_equivariant():
        assert_invariant(model, x, model.group)


@pytest.mark.parametrize("name", NAMES)
def test_the_thin_models_are_of_the_registered_group(name: str) -> None:
    model, whole = thin(name), timm.create_model(name, device="meta")
    assert model.group == whole.group
    assert {type(m) for m in model.modules()} == {type(m) for m in whole.modules()}


@pytest.mark.parametrize("name", ["gcsa_small", "gcsa_pyramid_tiny"])
def test_a_broken_model_is_found(name: str) -> None:
    model = create(name, layer_scale=0)
    model.stem.convs[-1].tables[1, 0] *= 1.05
    found = errors(model, image(model))
    assert found["logits"] > 1e-4
    assert found["features"] > 1e-3


def test_logits_depend_on_the_image() -> None:
    model = create("gcsa_tiny")
    a, b = model(image(model, 2))
    assert relative_error(a, b) > 1e-2


@pytest.mark.parametrize(
    "name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcsa_pooled_small", "gcsa_linear_tiny", "gcnn_tiny", "gsa_tiny"]
)
def test_regularised(name: str) -> None:
    dropped = {} if name in ("gcsa_linear_tiny", "gcnn_tiny") else dict(attn_drop_rate=0.2)
    model = thin(name, **dropped, drop_path_rate=0.3, proj_drop_rate=0.2, drop_rate=0.2)
    assert_equivariant(model, image(model, 2), model.group, "image", "invariant", generators(model.group))


@pytest.mark.parametrize("size", [(28, 28), (12, 20), (4, 4)])
def test_sizes(size: tuple[int, int]) -> None:
    assert_invariant(create("gcsa_tiny"), torch.randn(1, 1, *size), "c8")


@pytest.mark.filterwarnings("ignore:group=[cd][56] is exact on a grid")
@pytest.mark.parametrize("group", ["c2", "c6", "c16", "d1", "d2", "d5", "d6", "d8"])
@pytest.mark.parametrize("family", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcsa_pooled_small"])
def test_other_groups_by_keyword(family: str, group: str) -> None:
    model = thin(family, group=group)
    assert model.group.name == group
    assert all(error <= 1e-5 for error in errors(model, image(model)).values())


@pytest.mark.parametrize(
    "options",
    [
        dict(attention="group"),
        dict(attention="group", radius=1),
        dict(attention="spatial", radius=2, shape="disc"),
        dict(attention="linear", num_random_features=32),
        dict(kernel_size=5, kv_stride=2),
        dict(separable=True, layer_scale=0.1),
        dict(padding_mode="circular", attention="group", radius=1),
        dict(global_pool="max", head_fields=0),
        dict(stem_strides=(3,)),
        dict(stem_norm="batch", low_pass=False, positions=True, centred=True, global_pool="avg"),
    ],
)
@pytest.mark.parametrize("group", ["c8", "d4"])
def test_other_layers_by_keyword(group: str, options: dict[str, Any]) -> None:
    model = thin("gcsa_tiny", group=group, **options)
    assert all(error <= 1e-5 for error in errors(model, torch.randn(1, 1, 24, 24)).values())


@pytest.mark.parametrize("attention", ["group", "spatial"])
def test_pyramid_attention_by_keyword(attention: str) -> None:
    model = create("gcsa_pyramid_tiny", attention=attention, radii=(1, 2, "all", None), shape="disc")
    assert all(error <= 1e-5 for error in errors(model, image(model)).values())


@pytest.mark.parametrize("group", ["c1", "d1", "c2"])
def test_smaller_groups_are_not_invariant_to_more(group: str) -> None:
    """c1 is the plain baseline, so it must fail what the others pass."""
    model = create("gcsa_tiny", group=group)
    if group != "c1":
        assert_invariant(model, image(model), group)
    with not_equivariant():
        assert_equivariant(model, image(model), "d4", "image", "invariant")


@pytest.mark.parametrize(
    "name", ["gcsa_tiny", "gcsa_pyramid_tiny", "gcsa_pooled_small", "gcsa_linear_tiny", "gcnn_tiny"]
)
def test_circular_padding_makes_shifts_exact(name: str) -> None:
    model = thin(name, padding_mode="circular").double()
    size = 4 * model.size_divisor
    x = torch.randn(1, model.in_chans, size, size, dtype=torch.float64)
    shifted = x.roll((model.size_divisor, -2 * model.size_divisor), (2, 3))
    plain = thin(name).double()
    with torch.no_grad():
        assert relative_error(model(shifted), model(x)) < 1e-12
        assert relative_error(plain(shifted), plain(x)) > 1e-6
