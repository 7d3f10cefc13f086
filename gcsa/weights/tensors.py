"""What tensors must be before a model takes them or a file gets them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from gcsa._utils.errors import UserError


def check_tensors(source: str | Path, stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raises ValueError, naming the first tensor, unless `stored` has the names, shapes and kinds of numbers of `wanted`.

    Floating-point numbers may have another precision, whole numbers not.
    """
    shapes, expected = ({name: list(tensor.shape) for name, tensor in tensors.items()} for tensors in (stored, wanted))
    if shapes != expected:
        name = min(name for name in shapes.keys() | expected if shapes.get(name) != expected.get(name))
        raise UserError(
            f"{source} holds another architecture: its {name[:100]} is {shapes.get(name, 'missing')}, the model's is "
            f"{expected.get(name, 'missing')}: pass the model options that run was made with",
            "weights.other_architecture",
        )
    for name, tensor in stored.items():
        if tensor.dtype != wanted[name].dtype and not (tensor.is_floating_point() and wanted[name].is_floating_point()):
            raise UserError(
                f"{source} holds {name} as {tensor.dtype}, where the model has {wanted[name].dtype}", "weights.dtype"
            )


def check_finite(source: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises ValueError, naming the first tensor, where a number is NaN or infinite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UserError(
                f"{source}: {name[:100]} holds NaN or infinite numbers: these weights are of no use",
                "weights.not_finite",
            )
