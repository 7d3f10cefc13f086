"""The published REViT shape for rotated MNIST, ours against escnn modules: `python benchmarks/revit_shape.py`.

C4, 12 fields, depth 4, 6 heads, 5 x 5 queries, keys and values, 14 x 14 positions, spatial attention, batch 64. That
model's own code takes about 210 ms forward and 1,200 ms a training step on a machine of two cores (design, measured).
"""

from __future__ import annotations

import timm
import torch
from common import arguments, forward_and_step, ratios, save
from escnn_peer import EscnnNet

import gcsa  # noqa: F401  (registers the models)
from gcsa.testing import equivariance_error

PUBLISHED_MS = {"forward": 210, "forward_backward": 1200}


def main() -> None:
    args = arguments(__doc__)
    ours = timm.create_model(
        "gcsa_tiny_c4", fields=12, depth=4, heads=6, kernel_size=5, mlp_ratio=1, stem_strides=(2,), head_fields=0
    )
    theirs = EscnnNet(12, 6, 4, 5, 1, depth=4, in_chans=1)
    x = torch.randn(64, 1, 28, 28)
    timings = forward_and_step({"gcsa": (ours, x), "escnn modules": (theirs, x)}, args.repeats)
    error = max(equivariance_error(ours.eval(), x[:4], "c4", g, "image", "invariant") for g in range(4))
    content = {
        "parameters": sum(p.numel() for p in ours.parameters()),
        "invariance_error": error,
        **timings,
        "times_faster_than_escnn_modules": ratios(timings, "escnn modules", "gcsa"),
        "times_faster_than_published": {
            mode: published / timings[mode]["gcsa"]["median_ms"] for mode, published in PUBLISHED_MS.items()
        },
    }
    save("revit_shape", content)


if __name__ == "__main__":
    main()
