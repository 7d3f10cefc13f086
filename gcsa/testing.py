"""Checks of equivariance for layers and models, public for the tests of users' own layers.

The kind of an input or an output says how a group element acts on it:

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

import copy
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import Group, group as make_group

Kind = Literal["image", "field", "regular", "vector", "rays", "invariant"]
KINDS = ("image", "field", "regular", "vector", "rays", "invariant")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


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
    raise UserError(f"unknown kind {kind!r}: choose one of {', '.join(KINDS)}")


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """|actual - expected| / |expected| in the Euclidean norm. It is infinite if either holds a NaN or the shapes differ."""
    if actual.shape != expected.shape:
        return float("inf")
    error = ((actual - expected).norm() / expected.norm().clamp_min(torch.finfo(expected.dtype).tiny)).item()
    return error if error == error else float("inf")


def equivariance_error(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    group: str | Group,
    g: int,
    input: Kind = "field",
    output: Kind = "field",
) -> float:
    """Relative error |f(g x) - g f(x)| / |f(x)| for one exact element g.

    Both calls start from the same random state, so dropout and drop path draw the same masks.
    """
    (error,) = _errors(function, x, make_group(group), (g,), input, output)
    return error


def _errors(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    group: Group,
    elements: Iterable[int],
    input: Kind,
    output: Kind,
    most: float = float("inf"),
) -> list[float]:
    """The `equivariance_error` of each element, up to the first that is above `most`."""
    errors = []
    with torch.random.fork_rng(devices=[]):
        state = torch.get_rng_state()
        still = function(x).detach()
        for g in elements:
            torch.set_rng_state(state)
            moved = function(act(x, group, g, input)).detach()
            errors.append(relative_error(moved, act(still, group, g, output)))
            if errors[-1] > most:
                break
    return errors


def assert_equivariant(
    module: nn.Module,
    x: Tensor,
    group: str | Group,
    input: Kind = "field",
    output: Kind = "field",
    elements: Iterable[int] | None = None,
    dtypes: Iterable[torch.dtype] = (torch.float64, torch.float32),
    tolerance: dict[torch.dtype, float] = TOLERANCE,
) -> None:
    """Asserts f(g x) = g f(x) for every exact element but the identity, in train and eval mode, in each dtype.

    The function tests a copy and leaves `module` unchanged.

    Args:
        module: the function f, of one tensor.
        x: an input of the kind `input`, in any floating-point dtype.
        group: such as "c4".
        input, output: kinds of data; see the head of this file.
        elements: exact elements to test; None tests all, `Group.exact_elements`. They may be few: of the ten elements of d5 only
            the left-right reflection is tested, for the others do not map the grid onto itself.
        dtypes: of the module and its input, one after the other.
        tolerance: largest relative error for each dtype.

    Raises:
        AssertionError: with the first element, mode, dtype and error that fail.
        ValueError: the identity is the only element to test, which every function passes.
    """
    group = make_group(group)
    elements = tuple(g for g in (group.exact_elements if elements is None else elements) if g != 0)
    if not elements:
        raise UserError(
            f"the identity is the only element of {group} to test, which every function passes: take a group with "
            "rotations by 90 or 180 degrees or reflections, such as c4 or d1"
        )
    for dtype in dtypes:
        tested = copy.deepcopy(module).to(dtype)
        for training in (False, True):
            tested.train(training)
            errors = _errors(tested, x.to(dtype), group, elements, input, output, tolerance[dtype])
            for g, error in zip(elements, errors, strict=False):  # they end with the first that fails
                if not error <= tolerance[dtype]:
                    mode = "train" if training else "eval"
                    raise AssertionError(
                        f"{type(module).__name__} is not equivariant: relative error {error:.2e} > {tolerance[dtype]:.0e} "
                        f"for element {g} of {group}, {mode} mode, {str(dtype)[6:]}"
                    )


def assert_invariant(module: nn.Module, x: Tensor, group: str | Group, input: Kind = "image") -> None:
    """`assert_equivariant` for outputs that must not change, such as logits."""
    assert_equivariant(module, x, group, input, "invariant")


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Adds noise to every bias, norm and scale in place, because initial zeros and ones can hide broken equivariance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim <= 1:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_((0.2 * noise).to(parameter))
    return module
