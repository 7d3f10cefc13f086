"""Scalars, vectors and rays move as they should, under every exact element; with wrong tables they do not."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gcsa.actions import act
from gcsa.groups import group
from gcsa.layers import Rays, Scalars
from gcsa.testing import assert_equivariant
from tests.errors import not_equivariant, raises

MOVING = ("c2", "c4", "c8", "d1", "d2", "d3", "d4", "d6", "d8")


def field(fields: int, name: str) -> Tensor:
    return torch.randn(2, 5, 5, group(name).order, fields, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MOVING)
def test_equivariant(name: str) -> None:
    assert_equivariant(Scalars(), field(3, name), name, output="image")
    rays = Rays(name, 24 * group(name).rotations)
    assert_equivariant(rays, field(rays.fields, name), name, output="rays")


@pytest.mark.parametrize("name", ["c4", "d4"])
def test_controls(name: str) -> None:
    class First(nn.Module):
        """The numbers of one element are no scalar."""

        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, :, 0].permute(0, 3, 1, 2)

    with not_equivariant():
        assert_equivariant(First(), field(3, name), name, output="image")
    with not_equivariant():
        assert_equivariant(Scalars(), field(4, name), name, output="vector")
    wrong = Rays(name, 32)
    wrong._places[0], wrong._places[1] = wrong._places[1], wrong._places[0]
    with not_equivariant():
        assert_equivariant(wrong, field(wrong.fields, name), name, output="rays")


def test_a_vector_turns_as_an_arrow() -> None:
    """To the right, (row 0, column 1), becomes upwards, (-1, 0), in a picture turned by 90 degrees counter-clockwise."""
    right = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1)
    assert act(right, "c4", 1, "vector").flatten().tolist() == [-1, 0]
    assert act(right, "d4", 4, "vector").flatten().tolist() == [0, -1]  # mirrored from left to right


@pytest.mark.parametrize("name", MOVING)
def test_rays_are_directions(name: str) -> None:
    """Each element takes direction k, as a vector, to the direction that the table names; each direction has as many places."""
    h, count = group(name), 12 * group(name).rotations
    angles = 2 * math.pi * np.arange(count) / count
    directions = np.stack([np.sin(angles), np.cos(angles)], -1)
    for g in range(h.order):
        assert np.allclose(directions[h.rays(count)[g]], directions @ h.array_matrix(g).T)
    assert {len(places) for places in Rays(name, count)._places} == {2 if h.mirror else 1}


@pytest.mark.parametrize(("name", "rays"), [("c4", 6), ("d3", 9), ("c8", 0), ("d4", True), ("c4", 8.0)])
def test_refused_rays(name: str, rays: object) -> None:
    with raises("rays"):
        Rays(name, rays)  # type: ignore[arg-type]
