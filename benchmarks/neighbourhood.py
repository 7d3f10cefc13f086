"""Neighbourhood attention in tiles against a dense mask: `python benchmarks/neighbourhood.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import alternate, arguments, save

from gcsa.layers.attend import attend_nearby

RADIUS, HEADS, DIM = 3, 4, 32


def main() -> None:
    args = arguments(__doc__)
    content = {}
    for size in (32, 64):
        q, k, v = (torch.randn(1, HEADS, size, size, 1, DIM) for _ in range(3))
        y, x = (axis.flatten() for axis in torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
        near = ((y[:, None] - y).abs() <= RADIUS) & ((x[:, None] - x).abs() <= RADIUS)
        tokens = [t.flatten(2, 4) for t in (q, k, v)]
        sides = {
            "tiles": lambda q=q, k=k, v=v: attend_nearby(q, k, v, RADIUS, "square", False).flatten(2, 4),
            "dense mask": lambda tokens=tokens, near=near: F.scaled_dot_product_attention(*tokens, attn_mask=near),
        }
        with torch.no_grad():
            torch.testing.assert_close(sides["tiles"](), sides["dense mask"](), atol=1e-5, rtol=1e-4)
            content[f"{size} x {size} positions, radius {RADIUS}, forward"] = alternate(sides, args.repeats)
    save("neighbourhood", content)


if __name__ == "__main__":
    main()
