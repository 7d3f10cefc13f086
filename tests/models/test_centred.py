"""The network of experiment=pcam_centred: batch norm of fields, every filter, and what is about the image's centre."""

from typing import Any

import pytest
import timm
import torch

from gcsa.models.backbone import Backbone
from gcsa.models.folding import fold
from gcsa.testing import assert_equivariant, assert_invariant, randomize, relative_error
from tests.errors import not_equivariant, raises

OPTIONS: dict[str, Any] = dict(
    depth=1,
    num_heads=2,
    separable=True,
    stem_strides=(2, 2, 2),
    stem_fields=(4, 6),
    stem_norm="batch",
    low_pass=False,
    stem_separable=True,
    positions=True,
    centred=True,
    global_pool="avg",
    head_fields=8,
)


def network(group: str = "d4", **options: Any) -> Backbone:
    """With running statistics that are not those it began with."""
    model = randomize(timm.create_model("gcsa_small", group=group, fields=8, **{**OPTIONS, **options})).train()
    model(3 * torch.randn(4, 3, 32, 32) + 1)
    return model.eval()


@pytest.mark.parametrize("basis", ["band", "full"])
@pytest.mark.parametrize("group", ["c4", "d4"])
def test_invariant(group: str, basis: str) -> None:
    """In train and eval mode, float64 and float32."""
    assert_invariant(network(group, basis=basis), torch.randn(2, 3, 32, 32), group)


@pytest.mark.parametrize("name", ["gcnn_small", "gcsa_pyramid_tiny"])
def test_other_families_take_the_same_options(name: str) -> None:
    options = {key: OPTIONS[key] for key in ("stem_norm", "low_pass", "positions", "centred")}
    if "pyramid" in name:
        options["depths"] = (1, 1, 1, 1)
    else:
        options |= {"depth": 1, "stem_strides": (2, 2, 2), "stem_separable": True}
    model = randomize(timm.create_model(name, group="c4", **options))
    assert_invariant(model, torch.randn(2, 3, 64, 64), "c4")


def test_a_shifted_centre_is_found() -> None:
    model: Any = network()
    places = model.stem.positions.forward
    model.stem.positions.forward = lambda x: places(x.roll(1, 2)).roll(-1, 2)
    with not_equivariant():
        assert_equivariant(model, torch.randn(2, 3, 32, 32), "d4", "image", "invariant")


def test_it_knows_the_centre_and_takes_other_sizes() -> None:
    blob = torch.zeros(1, 3, 64, 64)
    blob[:, :, 28:36, 28:36] = 3
    for knows in (True, False):
        model = network(positions=knows, centred=knows, padding_mode="circular")
        moved = relative_error(model(blob.roll(16, 3)), model(blob))
        assert moved > 1e-3 if knows else moved < 1e-5


def test_folded() -> None:
    model, x = network(), torch.randn(2, 3, 40, 48)
    assert torch.allclose(fold(model)(x), model(x), rtol=0, atol=1e-6)


def test_positions_are_not_decayed() -> None:
    assert network().no_weight_decay() == {"stem.positions.weight"}


def test_widths_that_do_not_fit_the_strides() -> None:
    with raises("stem_fields"):
        network(stem_fields=(4,))


def test_stem_separable_is_of_the_convolutions_between_the_first_and_the_last() -> None:
    """4 fields to 6 by 4 x 4 pixels: every filter of d4's 8 elements, or one a field and then a matrix."""
    whole, separable = (
        [
            sum(parameter.numel() for parameter in conv.parameters())
            for conv in network(basis="full", stem_separable=value).stem.convs
        ]
        for value in (False, True)
    )
    assert (whole[1], separable[1]) == (6 * 4 * 8 * 16 + 6, 4 * 16 + 6 * 4 * 8 + 6)
    assert whole[::2] == separable[::2]


@pytest.mark.parametrize("strides", [(8,), (4, 2)])
def test_stem_separable_without_such_a_convolution(strides: tuple[int, ...]) -> None:
    with raises("stem_separable"):
        network(stem_strides=strides, stem_fields=None)
