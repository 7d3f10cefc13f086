"""Tensors into models: compared on the meta device first, so that no file decides how much memory is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError, one_line, reworded
from gcsa.weights.schema import Weights
from gcsa.weights.tensors import check_tensors

Model = TypeVar("Model", bound=nn.Module)


def fill(create: Callable[[], Model], weights: Weights) -> Model:
    """`create()` with the tensors of `weights`, in eval mode.

    Raises ValueError for an architecture or options that `create` refuses, and for tensors that are not those of the
    model. Both are found out on the meta device, before any memory is allocated.
    """
    try:
        with torch.device("meta"):
            wanted = create().state_dict()
    except UserError as error:
        raise reworded(error, f"{weights.source} cannot be read: {error}", "weights.damaged_entry") from error
    except NotImplementedError as error:  # a model that computes with numbers as it is made
        raise UserError(
            f"{weights.source}: {weights.architecture} cannot be read back ({one_line(error)})", "weights.architecture"
        ) from error
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:  # sizes that multiply to more than there is
        raise UserError(
            f"{weights.source} describes no model that can be made ({one_line(error)})", "weights.model"
        ) from error
    check_tensors(weights.source, weights.tensors, wanted)
    model = create()
    load_tensors(model, weights.tensors, weights.source)
    return model.eval()


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], source: str | Path, strict: bool = True) -> None:
    """`model.load_state_dict`, of which errors, such as another kernel basis, become a ValueError naming `source`."""
    try:
        model.load_state_dict(tensors, strict=strict)
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"{source} does not fit the model that it names: {one_line(error)}", "weights.shapes"
        ) from error
