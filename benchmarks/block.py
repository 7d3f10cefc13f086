"""One block in our layout against the same block of escnn modules: `python benchmarks/block.py`."""

from __future__ import annotations

import torch
from common import arguments, forward_and_step, ratios, save
from escnn_peer import CHANNELS_LAST, NCHW, PEERS, EscnnNet

from gcsa.groups import group
from gcsa.layers.block import Block
from gcsa.testing import assert_equivariant

SHAPES = {
    "c4, 12 fields, k 5, 14 x 14, batch 64": dict(order=4, fields=12, heads=6, kernel_size=5, size=14, batch=64),
    "c8, 12 fields, k 3, 7 x 7, batch 64": dict(order=8, fields=12, heads=2, kernel_size=3, size=7, batch=64),
    "c8, 24 fields, k 3, 12 x 12, batch 16": dict(order=8, fields=24, heads=4, kernel_size=3, size=12, batch=16),
}


def main() -> None:
    args = arguments(__doc__)
    content = {}
    for name, s in SHAPES.items():
        c_n = group(f"c{s['order']}")
        ours = Block(s["fields"], s["heads"], c_n, mlp_ratio=2, kernel_size=s["kernel_size"])
        peer = (s["fields"], s["heads"], s["order"], s["kernel_size"], 2, 1)
        nchw, channels_last = EscnnNet(*peer), EscnnNet(*peer, channels_last=True)
        x = torch.randn(s["batch"], s["size"], s["size"], s["order"], s["fields"])
        assert_equivariant(ours, x[:2], c_n)
        field_major = x.permute(0, 4, 3, 1, 2).flatten(1, 2).contiguous()
        sides = {"gcsa": (ours, x), NCHW: (nchw, field_major), CHANNELS_LAST: (channels_last, field_major)}
        timings = forward_and_step(sides, args.repeats)
        content[name] = {**timings, "times_faster": {peer: ratios(timings, peer, "gcsa") for peer in PEERS}}
    save("block", content)


if __name__ == "__main__":
    main()
