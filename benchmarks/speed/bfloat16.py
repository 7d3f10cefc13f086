"""A training step in float32 and under bfloat16 autocast, taking turns: `python -m benchmarks.speed.bfloat16 --threads 1`.

Forward and backward. `trainer.precision=bf16-mixed` trains so; it pays on processors with bfloat16 products (AMX). What stays in
float32 is in docs/adr/0029.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa
from benchmarks.common import arguments, forward_and_step, save
from benchmarks.speed.deployment import WEIGHTS
from benchmarks.speed.models import Autocast

# Name to batch, channels, height and width. Names with a dot are published weights; the last two are timm's.
MODELS = {
    "gcsa_tiny": (64, 1, 28, 28),
    "gcsa_hybrid_tiny": (64, 1, 28, 28),
    "gcnn_tiny": (64, 1, 28, 28),
    "gcsa_small": (32, 3, 96, 96),
    "gcsa_pooled_small": (32, 3, 96, 96),
    "gcsa_hybrid_small": (32, 3, 96, 96),
    "gcnn_small": (32, 3, 96, 96),
    "gcsa_unet_tiny.nuclei": (4, 3, 256, 256),
    "gcsa_ocr_tiny.french": (8, 1, 40, 480),
    "resnet18": (32, 3, 96, 96),
    "vit_tiny_patch16_224": (4, 3, 224, 224),
}


def networks(names: Iterable[str]) -> dict[str, tuple[nn.Module, Tensor]]:
    """Each network of `MODELS` with a batch."""
    made = {}
    for name in names:
        batch, in_chans, *size = MODELS[name]
        published = "." in name
        model = (
            gcsa.load(WEIGHTS / name).network
            if published
            else timm.create_model(name, num_classes=10, in_chans=in_chans)
        )
        made[name] = model, torch.randn(batch, in_chans, *size)
    return made


def main() -> None:
    args = arguments(__doc__)
    content: dict[str, Any] = {}
    for name, (model, x) in networks(MODELS).items():
        sides: dict[str, tuple[nn.Module, Tensor]] = {"float32": (model, x), "bfloat16": (Autocast(model), x)}
        times = forward_and_step(sides, args.repeats, ("forward_backward",))["forward_backward"]
        content[name] = {"batch": len(x), "size": [*x.shape[1:]], **times}
    save("bfloat16", content)


if __name__ == "__main__":
    main()
