"""A training step in float32 and under bfloat16 autocast, taking turns: `python -m benchmarks.speed.bfloat16 --threads 1`.

Forward and backward. `trainer.precision=bf16-mixed` trains so; it pays on processors with bfloat16 products (AMX). What stays in
float32 is in docs/adr/0029.
"""

from __future__ import annotations

from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import arguments, forward_and_step, save
from benchmarks.speed.models import Autocast

# Name to batch, channels and side; the last two are timm's.
MODELS = {
    "gcsa_tiny": (64, 1, 28),
    "gcsa_hybrid_tiny": (64, 1, 28),
    "gcnn_tiny": (64, 1, 28),
    "gcsa_small": (32, 3, 96),
    "gcsa_pooled_small": (32, 3, 96),
    "gcsa_hybrid_small": (32, 3, 96),
    "gcnn_small": (32, 3, 96),
    "resnet18": (32, 3, 96),
    "vit_tiny_patch16_224": (4, 3, 224),
}


def main() -> None:
    args = arguments(__doc__)
    content: dict[str, Any] = {}
    for name, (batch, in_chans, side) in MODELS.items():
        model = timm.create_model(name, num_classes=10, in_chans=in_chans)
        x = torch.randn(batch, in_chans, side, side)
        sides: dict[str, tuple[nn.Module, Tensor]] = {"float32": (model, x), "bfloat16": (Autocast(model), x)}
        times = forward_and_step(sides, args.repeats, ("forward_backward",))["forward_backward"]
        content[name] = {"batch": batch, "size": [in_chans, side, side], **times}
    save("bfloat16", content)


if __name__ == "__main__":
    main()
