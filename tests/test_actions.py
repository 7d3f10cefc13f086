"""Tensors, arrays and points transform alike."""

import numpy as np
import pytest
import torch

from gcsa.actions import act, transform_array, transform_points, transformed_shape
from gcsa.groups import group
from gcsa.layers.layout import to_nchw
from tests.errors import raises


@pytest.mark.parametrize("g", group("d4").exact_elements)
def test_kinds_agree(g: int) -> None:
    x = torch.randn(2, 3, 4, 8, 5)
    assert torch.equal(act(to_nchw(x), "d4", g, "regular"), to_nchw(act(x, "d4", g, "field")))
    assert torch.equal(act(x, "d4", g, "invariant"), x)
    fields = torch.randn(2, 3, 6, 6)
    assert torch.equal(act(fields, "d4", g, "image"), group("d4").act_on_grid(fields, g))


def test_unknown_kind() -> None:
    with raises("kind"):
        act(torch.zeros(1), "c4", 0, "colour")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["c4", "c8", "d4"])
def test_arrays_and_points_move_as_tensors_do(name: str) -> None:
    h, image = group(name), np.arange(35.0).reshape(5, 7)
    points = np.array([(0, 0), (2, 5), (4, 6)])
    for g in h.exact_elements:
        moved = transform_array(image, h, g)
        assert np.array_equal(moved, act(torch.from_numpy(image), h, g, "image"))
        assert moved.shape == transformed_shape(image.shape, h, g)
        rows, columns = transform_points(points, image.shape, h, g).astype(int).T
        assert np.array_equal(moved[rows, columns], image[tuple(points.T)])
