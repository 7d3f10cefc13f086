"""The state in which models are measured and used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[torch.device]:
    """Eval mode, no gradients, and full float32 on a GPU: TF32 moves logits by 1e-3. Undone afterwards.

    Yields the device of the model.
    """
    modes = [(module, module.training) for module in model.modules()]
    precision = torch.get_float32_matmul_precision()
    parameter = next(model.parameters(), None)
    model.eval()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield torch.device("cpu") if parameter is None else parameter.device
    finally:
        torch.set_float32_matmul_precision(precision)
        for module, training in modes:
            module.training = training
