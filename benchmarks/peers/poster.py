"""G-CSA against our own G-SA with relative encodings, in the setting of the poster: `python -m benchmarks.peers.poster`.

The poster is "Group Convolutional Self-Attention for Roto-Translation Equivariance in ViTs" (Zaheer, Holston and Park), the
source of G-CSA. It gives 91 ms for G-CSA and 144 ms for G-SA on an RTX 3090, 1.58 times as long. Here: batch 32 of 96 x 96
images, c4, the same width, depth, heads and tokens (12 x 12 positions). G-CSA attends to the whole map and G-SA, by its
default radius of 2, to the 5 x 5 positions around each. Peak memory is that of one forward pass and one training
step in a fresh process each, beyond what the process holds before it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import alone, arguments, forward_and_step, ratios, save, step_megabytes
from gcsa.testing import equivariance_error

SHAPE = dict(group="c4", fields=24, depth=6, num_heads=4, num_classes=2)
SIDES: dict[str, dict[str, Any]] = {
    "G-CSA, spatial": dict(model_name="gcsa_small", attention="spatial"),
    "G-CSA, group": dict(model_name="gcsa_small", attention="group"),
    "G-SA, corrected": dict(model_name="gsa_small", encoding="corrected"),
    "G-SA, gevit": dict(model_name="gsa_small", encoding="gevit"),
}
OURS, PEERS = list(SIDES)[:2], list(SIDES)[2:]


def build(side: str) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(**SIDES[side], **SHAPE)


def with_images(side: str) -> tuple[nn.Module, Tensor]:
    return build(side), torch.randn(32, 3, 96, 96)


def main() -> None:
    args = arguments(__doc__)
    x = torch.randn(32, 3, 96, 96)
    models = {side: build(side).eval() for side in SIDES}
    errors = {
        side: max(equivariance_error(model, x[:1], "c4", g, "image", "invariant") for g in range(4))
        for side, model in models.items()
    }
    timings = forward_and_step({side: (model, x) for side, model in models.items()}, args.repeats)
    modes = {"forward": False, "forward_backward": True}
    memory = {
        side: {
            mode: alone(step_megabytes, partial(with_images, side), training, args.threads)
            for mode, training in modes.items()
        }
        for side in SIDES
    }
    content = {
        "shape": SHAPE,
        "parameters": {side: sum(p.numel() for p in model.parameters()) for side, model in models.items()},
        "invariance_error": errors,
        **timings,
        "peak_megabytes": memory,
        "times_faster": {ours: {peer: ratios(timings, peer, ours) for peer in PEERS} for ours in OURS},
    }
    save("poster", content)


if __name__ == "__main__":
    main()
