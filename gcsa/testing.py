"""Checks of equivariance for layers and models; public, so that users test their own layers the same way.

The kinds of data that a function takes and gives: "image" (..., H, W), scalar fields that only move; "field"
(B, H, W, N, C), regular fields in the house layout; "regular" (B, N * C, H, W), the same as NCHW users see it;
"vector" (B, 2 C, H, W), pairs of a row and a column component, which turn as arrows do; "rays" (B, R, H, W), numbers for R
directions (`Group.rays`), which change places; "invariant", anything that does not change.
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
    """|actual - expected| / |expected| in the Euclidean norm; infinite where either holds a NaN or shapes differ."""
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

    The random state is the same for both calls, so that dropout and drop path draw the same masks.
    """
    (error,) = _errors(function, x, make_group(group), (g,), input, output)
    return error


def _errors(
    function: Callable[[Tensor], Tensor], x: Tensor, group: Group, elements: Iterable[int], input: Kind, output: Kind
) -> list[float]:
    errors = []
    with torch.random.fork_rng(devices=[]):
        state = torch.get_rng_state()
        still = function(x).detach()
        for g in elements:
            torch.set_rng_state(state)
            moved = function(act(x, group, g, input)).detach()
            errors.append(relative_error(moved, act(still, group, g, output)))
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
    """Holds f(g x) = g f(x) for every exact element but the identity, in train and eval mode, in each dtype.

    Works on a copy; `module` is left as it is. Raises AssertionError naming the first element, mode, dtype and
    error that fail, and ValueError where the identity is the only element, for it is kept by every function.
    """
    group = make_group(group)
    elements = tuple(g for g in (group.exact_elements if elements is None else elements) if g != 0)
    if not elements:
        raise UserError(
            f"the identity is the only element of {group} to test, which every function passes: take a group with "
            "quarter turns, half turns or mirrors, such as c4 or d1"
        )
    for dtype in dtypes:
        tested = copy.deepcopy(module).to(dtype)
        for training in (False, True):
            tested.train(training)
            errors = _errors(tested, x.to(dtype), group, elements, input, output)
            for g, error in zip(elements, errors, strict=True):
                if not error <= tolerance[dtype]:
                    mode = "train" if training else "eval"
                    raise AssertionError(
                        f"{type(module).__name__} is not equivariant: relative error {error:.2e} > {tolerance[dtype]:.0e} "
                        f"for element {g} of {group}, {mode} mode, {str(dtype)[6:]}"
                    )


def assert_invariant(module: nn.Module, x: Tensor, group: str | Group, input: Kind = "image") -> None:
    """`assert_equivariant` for outputs that must not change at all, such as logits."""
    assert_equivariant(module, x, group, input, "invariant")


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Adds noise to every bias, norm and scale, in place, so that no zero or one hides a broken equivariance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim <= 1:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_((0.2 * noise).to(parameter))
    return module
