"""How far two tensors are apart."""

import torch
from torch import Tensor


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """|actual - expected| / |expected| in the Euclidean norm. It is infinite if either holds a NaN or the shapes differ."""
    if actual.shape != expected.shape:
        return float("inf")
    error = ((actual - expected).norm() / expected.norm().clamp_min(torch.finfo(expected.dtype).tiny)).item()
    return error if error == error else float("inf")
