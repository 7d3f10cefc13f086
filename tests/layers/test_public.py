"""The public face of the layers: what `gcsa.layers` names is documented, is what models use, and takes a group or its name."""

import inspect
from typing import Any

import pytest
import torch

import gcsa.layers
from gcsa.groups import group
from tests.errors import raises

LAYERS = [
    name
    for name in gcsa.layers.__all__
    if inspect.isclass(layer := getattr(gcsa.layers, name)) and "group" in inspect.signature(layer).parameters
]
ARGUMENTS: dict[str, Any] = dict(
    fields=4,
    in_fields=4,
    out_fields=4,
    skip_fields=4,
    hidden_fields=4,
    num_heads=2,
    in_chans=1,
    num_classes=3,
    kernel_size=3,
    radius=1,
    strides=(1, 2),
    rays=8,
    waves=4,
    positions=True,
)


def make(name: str, group: Any) -> torch.nn.Module:
    layer = getattr(gcsa.layers, name)
    taken = inspect.signature(layer).parameters
    torch.manual_seed(0)
    return layer(**{key: value for key, value in ARGUMENTS.items() if key in taken}, group=group)


def test_there_are_such_layers() -> None:
    assert {"Block", "Fusion", "InvariantHead", "Rays", "ResidualBlock", "SteerableConv2d", "Stem"} <= set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_a_name_is_a_group(name: str) -> None:
    by_name, by_group = make(name, "d4"), make(name, group("d4"))
    assert repr(by_name) == repr(by_group)
    tensors, others = by_name.state_dict(), by_group.state_dict()
    assert tensors.keys() == others.keys()
    assert all(torch.equal(tensors[key], others[key]) for key in tensors)
    assert all(torch.equal(one, other) for one, other in zip(by_name.buffers(), by_group.buffers(), strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_another_name_is_refused(name: str) -> None:
    with raises("group"):
        make(name, "e4")


@pytest.mark.parametrize("name", gcsa.layers.__all__)
def test_is_documented(name: str) -> None:
    thing: Any = getattr(gcsa.layers, name)
    assert thing.__module__.startswith("gcsa.layers.")
    text = inspect.getdoc(thing)
    assert text
    assert thing.__doc__  # its own, not an inherited one
    if inspect.isclass(thing):
        assert inspect.getdoc(thing.forward)


def test_names_are_sorted_and_complete() -> None:
    """Every module with a docstring of its layout that a model file imports is there."""
    from gcsa.models import gcnn, gcsa as gcsa_family, gcsa_pyramid
    from gcsa.models.baselines import gsa

    used = {
        name
        for module in (gcnn, gcsa_family, gcsa_pyramid, gsa)
        for name, thing in vars(module).items()
        if inspect.isclass(thing) and thing.__module__.startswith("gcsa.layers.")
    }
    assert used
    assert used <= set(gcsa.layers.__all__)
