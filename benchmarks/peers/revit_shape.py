"""The published shape of REViT (Zaheer et al. 2026, arXiv:2606.25318) for rotated MNIST, ours against escnn modules: `python -m benchmarks.peers.revit_shape`.

C4, 12 fields, depth 4, 6 heads, 5 x 5 queries, keys and values, 14 x 14 positions, spatial attention, batch 64.
"""

from __future__ import annotations

import timm
import torch

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import arguments, forward_and_step, ratios, save
from benchmarks.peers.escnn_peer import CHANNELS_LAST, NCHW, PEERS, EscnnNet
from gcsa.testing import equivariance_error


def main() -> None:
    args = arguments(__doc__)
    ours = timm.create_model(
        "gcsa_tiny",
        group="c4",
        fields=12,
        depth=4,
        num_heads=6,
        kernel_size=5,
        mlp_ratio=1,
        stem_strides=(2,),
        head_fields=0,
    )
    nchw, channels_last = (EscnnNet(12, 6, 4, 5, 1, 4, in_chans=1, channels_last=last) for last in (False, True))
    x = torch.randn(64, 1, 28, 28)
    timings = forward_and_step({"gcsa": (ours, x), NCHW: (nchw, x), CHANNELS_LAST: (channels_last, x)}, args.repeats)
    error = max(equivariance_error(ours.eval(), x[:4], "c4", g, "image", "invariant") for g in range(4))
    content = {
        "parameters": sum(p.numel() for p in ours.parameters()),
        "invariance_error": error,
        **timings,
        "times_faster": {peer: ratios(timings, peer, "gcsa") for peer in PEERS},
    }
    save("revit_shape", content)


if __name__ == "__main__":
    main()
