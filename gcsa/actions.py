"""How group elements act on tensors, arrays, points and shapes.

The kind of a tensor says how an element acts on it:

| kind        | shape            | action                                                                       |
|-------------|------------------|------------------------------------------------------------------------------|
| "image"     | (..., H, W)      | scalar fields: positions move                                                |
| "field"     | (B, H, W, N, C)  | regular fields: positions move, and the N channels are permuted              |
| "regular"   | (B, N * C, H, W) | the same in NCHW layout                                                      |
| "vector"    | (B, 2 C, H, W)   | pairs of a row and a column component: positions move, and vectors rotate    |
| "rays"      | (B, R, H, W)     | values for R directions (`Group.rays`): positions move, directions permute   |
| "invariant" | any              | none                                                                         |
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.groups import Group, group as make_group

Kind = Literal["image", "field", "regular", "vector", "rays", "invariant"]
KINDS = ("image", "field", "regular", "vector", "rays", "invariant")


def act(x: Tensor, group: str | Group, g: int, kind: Kind) -> Tensor:
    """The action of the exact element g on data of one of the kinds above.

    Raises ValueError for an unknown kind or an element that does not map the pixel grid onto itself.
    """
    group = make_group(group)
    if kind == "image":
        return group.act_on_grid(x, g)
    if kind == "field":
        return group.act(x, g)
    if kind == "regular":
        return group.act_on_fibre(group.act_on_grid(x.unflatten(1, (group.order, -1)), g), g, dim=1).flatten(1, 2)
    if kind == "vector":
        matrix = torch.from_numpy(group.array_matrix(g)).round().to(x)
        pairs = group.act_on_grid(x, g).unflatten(1, (-1, 2))
        return torch.einsum("gh,bchxy->bcgxy", matrix, pairs).flatten(1, 2)
    if kind == "rays":
        moved = torch.empty_like(x)
        moved[:, torch.from_numpy(group.rays(x.shape[1])[g])] = x
        return group.act_on_grid(moved, g)
    if kind == "invariant":
        return x
    raise UserError(f"unknown kind {kind!r}: choose one of {', '.join(KINDS)}", "kind", kind=kind)


def transformed_shape(shape: tuple[int, int], group: Group, g: int) -> tuple[int, int]:
    """The shape of an image of `shape` after the exact element g."""
    return shape if group.array_matrix(g).round()[0, 0] else (shape[1], shape[0])


def transform_array(values: Array, group: Group, g: int) -> Array:
    """An array (H, W, ...) after the exact element g; a view."""
    flip, rotation = divmod(g, group.rotations)
    return np.rot90(values[:, ::-1] if flip else values, 4 * rotation // group.rotations)


def transform_points(points: NDArray[np.float64], shape: tuple[int, int], group: Group, g: int) -> NDArray[np.float64]:
    """Points (n, 2), row and column in an image of `shape`, after the exact element g about its centre."""
    matrix = group.array_matrix(g).round()
    centre = (np.array(shape) - 1) / 2
    return (points - centre) @ matrix.T + abs(matrix) @ centre
