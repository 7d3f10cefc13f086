"""Checks of equivariance for layers and models, public for the tests of users' own layers.

`input` and `output` are kinds of `gcsa.actions`, which say how a group element acts on a tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.actions import Kind, act
from gcsa.evaluation.relative_error import relative_error
from gcsa.groups import Group, group as make_group

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


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
        input, output: kinds of data; see `gcsa.actions`.
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
            "rotations by 90 or 180 degrees or reflections, such as c4 or d1",
            "group.identity",
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
