"""One block in our layout against the same block of escnn modules: `python -m benchmarks.peers.block`.

Full k x k queries, keys and values, and separable ones as in `gcsa_base`. Ours is folded for evaluation, as escnn keeps
its expanded filters there. Memory is that of a training step in a fresh process each, beyond what it holds before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.common import DEVICE, alone, arguments, forward_and_step, ratios, save, step_megabytes
from gcsa.groups import group
from gcsa.layers.blocks import Block
from gcsa.models.folding import fold
from gcsa.testing import assert_equivariant

SHAPES: dict[str, dict[str, Any]] = {
    "c4, 12 fields, k 5, 14 x 14, batch 64": dict(order=4, fields=12, heads=6, kernel_size=5, size=14, batch=64),
    "c8, 12 fields, k 3, 7 x 7, batch 64": dict(order=8, fields=12, heads=2, kernel_size=3, size=7, batch=64),
    "c8, 24 fields, k 3, 12 x 12, batch 16": dict(order=8, fields=24, heads=4, kernel_size=3, size=12, batch=16),
    "c8, 48 fields, separable, 14 x 14, batch 8": dict(
        order=8, fields=48, heads=6, kernel_size=3, size=14, batch=8, separable=True
    ),
    "c8, 96 fields, separable, 14 x 14, batch 4": dict(
        order=8, fields=96, heads=6, kernel_size=3, size=14, batch=4, separable=True
    ),
}
OURS = "gcsa"


def build(shape: str, side: str) -> tuple[nn.Module, Tensor]:
    """The block of this side, and its input in this side's layout."""
    s = SHAPES[shape]
    separable = s.get("separable", False)
    mlp_ratio = 4 if separable else 2
    x = torch.randn(s["batch"], s["size"], s["size"], s["order"], s["fields"])
    if side == OURS:
        options = dict(mlp_ratio=mlp_ratio, kernel_size=s["kernel_size"], separable=separable)
        return Block(s["fields"], s["heads"], group(f"c{s['order']}"), **options), x
    from benchmarks.peers.escnn_peer import CHANNELS_LAST, EscnnNet

    size = (s["fields"], s["heads"], s["order"], s["kernel_size"], mlp_ratio, 1)
    peer = EscnnNet(*size, channels_last=side == CHANNELS_LAST, separable=separable)
    return peer, x.permute(0, 4, 3, 1, 2).flatten(1, 2).contiguous()


def main() -> None:
    from benchmarks.peers.escnn_peer import PEERS

    args = arguments(__doc__)
    content = {}
    for name, shape in SHAPES.items():
        sides = {side: build(name, side) for side in (OURS, *PEERS)}
        ours, x = sides[OURS]
        assert_equivariant(ours, x[:2], f"c{shape['order']}")
        timings = forward_and_step({**sides, OURS: (fold(ours.to(DEVICE)), x)}, args.repeats, modes=("forward",))
        timings |= forward_and_step(sides, args.repeats, modes=("forward_backward",))
        memory = {side: alone(step_megabytes, partial(build, name, side), True, args.threads) for side in sides}
        content[name] = {
            **timings,
            "peak_megabytes": memory,
            "times_faster": {peer: ratios(timings, peer, OURS) for peer in PEERS},
        }
    save("block", content)


if __name__ == "__main__":
    main()
