"""What a training step of gcsa_pyramid_small costs, for docs/imagenet.md: `python -m benchmarks.scaling.imagenet_plan`.

Counted, not timed: FLOPs an image (forward; forward and backward) as torch's FlopCounterMode counts them, and the bytes an
image that autograd keeps for the backward pass, in float32 and with bfloat16 autocast, with and without activation
checkpointing. Step time, hours and images/s follow from the data sheets' peak of a GPU and an assumed achieved fraction of
it. benchmarks.scaling.image_input times the reading of files.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import arguments, save

MODEL, SIZE = "gcsa_pyramid_small", 224
GPUS, BATCH, EPOCHS = 8, 128, 300
TRAIN_IMAGES = 1_281_167
PEAKS = {"A100": 312e12, "H100 or H200 (SXM)": 989e12}
"""Dense bfloat16 FLOP/s of the data sheets: assumptions here."""
FRACTIONS = (0.05, 0.1, 0.2, 0.4)


def pass_through(model: nn.Module, batch: int, half: bool) -> Tensor:
    context: AbstractContextManager[object] = torch.autocast("cpu", torch.bfloat16) if half else nullcontext()
    with context:
        return model(torch.randn(batch, 3, SIZE, SIZE)).float().square().mean()


def conv_backward_flops(out: list[int], x: list[int], weight: list[int], *rest: Any, **_: Any) -> int:
    """Of the gradients of input and weight, each as many as of the forward pass. Torch's own count takes the groups of a
    depthwise convolution for one."""
    transposed, wanted = rest[4], rest[7]
    return (wanted[0] + wanted[1]) * conv_flop_count(x, weight, out, transposed)


def flops(model: nn.Module, training: bool) -> int:
    """Of one more image in a batch; attention is a plain product of matrices, which every kernel has to do."""
    totals = []
    for batch in (1, 2):
        counter = FlopCounterMode(
            display=False, custom_mapping={torch.ops.aten.convolution_backward: conv_backward_flops}
        )
        with sdpa_kernel(SDPBackend.MATH), counter, torch.set_grad_enabled(training):
            loss = pass_through(model, batch, False)
            if training:
                loss.backward()
        totals.append(counter.get_total_flops())
    return totals[1] - totals[0]


def saved_bytes(model: nn.Module, half: bool) -> int:
    """Bytes that autograd keeps for one more image in a batch; every storage once, parameters and buffers never."""
    totals = []
    persistent = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    for batch in (1, 2):
        storages: dict[int, int] = {}
        alive = []  # so that no address is used twice

        def pack(tensor: Tensor, storages: dict[int, int] = storages, alive: list[Tensor] = alive) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in persistent:
                storages[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            pass_through(model, batch, half)
        totals.append(sum(storages.values()))
    return totals[1] - totals[0]


def plan(training_flops: int) -> list[dict[str, Any]]:
    """Step time and hours for each GPU and each achieved fraction of its peak."""
    rows = []
    for gpu, peak in PEAKS.items():
        for fraction in FRACTIONS:
            rate = peak * fraction / training_flops
            hours = EPOCHS * TRAIN_IMAGES / (GPUS * rate) / 3600
            row = {"gpu": gpu, "fraction": fraction, "images_per_second_and_gpu": rate}
            rows.append({**row, "step_ms": BATCH / rate * 1e3, "hours": hours, "gpu_hours": GPUS * hours})
    return rows


def main() -> None:
    arguments(__doc__)
    model = timm.create_model(MODEL, num_classes=1000).train()
    parameters = sum(p.numel() for p in model.parameters())
    counted = {"forward": flops(model, False), "training": flops(model, True)}
    activations = {}
    for checkpointing in (False, True):
        model.set_grad_checkpointing(checkpointing)
        for half in (False, True):
            key = f"{'bfloat16 autocast' if half else 'float32'}, {'checkpointed' if checkpointing else 'kept'}"
            activations[key] = saved_bytes(model, half)
    model.set_grad_checkpointing(True)
    counted["training, checkpointed"] = flops(model, True)
    content = {
        "model": MODEL,
        "image": SIZE,
        "parameters": parameters,
        "flops_per_image": counted,
        "saved_bytes_per_image": activations,
        # Weights, gradients, two moments and the average in float32; data parallel, so on every GPU.
        "state_bytes": 5 * 4 * parameters,
        "assumed": {"gpus": GPUS, "batch": BATCH, "epochs": EPOCHS, "train_images": TRAIN_IMAGES, "peaks": PEAKS},
        "plan": plan(counted["training"]),
    }
    save("imagenet_plan", content)


if __name__ == "__main__":
    main()
