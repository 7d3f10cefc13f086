"""The cost of a model: parameters, floating-point operations and speed."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.models.folding import fold


@dataclass(frozen=True)
class Cost:
    """Parameters; floating-point operations an image (a multiply-add is two); images a second, `batch` at a time."""

    parameters: int
    flops: int
    images_per_second: float
    batch: int
    device: str


def count_flops(model: nn.Module, image: Tensor) -> int:
    """Operations that one more image (C, H, W) adds to a batch, as torch's FlopCounterMode counts them: convolutions,
    matrix products and attention. Work that is done once a batch, such as expanding filters, does not count."""
    # The counter hooks onto every tensor that requires a gradient, which fails for a view of a parameter.
    model = copy.deepcopy(model).requires_grad_(False)
    totals = []
    for batch in (1, 2):
        # Unfused attention is a plain product of matrices: counted the same on every device and in every torch version.
        with evaluation_mode(model) as device, sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model(image.to(device).expand(batch, -1, -1, -1))
        totals.append(counter.get_total_flops())
    return totals[1] - totals[0]


def images_per_second(model: nn.Module, images: Tensor, repeats: int = 5) -> float:
    """Speed of the forward pass over one batch (B, C, H, W): the median of `repeats` after one that is not counted."""
    seconds = []
    with evaluation_mode(model) as device:
        images = images.to(device)
        for _ in range(repeats + 1):
            start = time.perf_counter()
            model(images)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - start)
    return len(images) / median(seconds[1:])


def measure_cost(model: nn.Module, images: Tensor) -> Cost:
    """`Cost` on one batch of images (B, C, H, W), on the model's device; the speed is that of the folded model. Raises
    ValueError for an adapter that is not merged."""
    with evaluation_mode(model) as device:
        on_gpu = device.type == "cuda"
        name = torch.cuda.get_device_name(device) if on_gpu else f"{torch.get_num_threads()} CPU thread(s)"
    parameters = sum(p.numel() for p in model.parameters())
    return Cost(parameters, count_flops(model, images[0]), images_per_second(fold(model), images), len(images), name)
