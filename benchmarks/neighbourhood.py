"""Neighbourhood attention in tiles against a dense mask and FlexAttention: `python benchmarks/neighbourhood.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import alternate, arguments, save
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from gcsa.layers.attend import attend_nearby

RADIUS, HEADS, DIM = 3, 4, 32


def main() -> None:
    args = arguments(__doc__)
    flex = torch.compile(flex_attention)
    content = {}
    for size in (32, 64):
        q, k, v = (torch.randn(1, HEADS, size, size, 1, DIM) for _ in range(3))
        y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        y, x = y.flatten(), x.flatten()

        def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor, y: Tensor = y, x: Tensor = x) -> Tensor:
            return ((y[i] - y[j]).abs() <= RADIUS) & ((x[i] - x[j]).abs() <= RADIUS)

        blocks = create_block_mask(near, None, None, size * size, size * size, device="cpu")
        i = torch.arange(size * size)
        dense = near(i, i, i[:, None], i[None, :])
        tokens = [t.flatten(2, 4) for t in (q, k, v)]
        sides = {
            "tiles": lambda q=q, k=k, v=v: attend_nearby(q, k, v, RADIUS, "square", False).flatten(2, 4),
            "dense mask": lambda tokens=tokens, dense=dense: F.scaled_dot_product_attention(*tokens, attn_mask=dense),
            "FlexAttention": lambda tokens=tokens, blocks=blocks: flex(*tokens, block_mask=blocks),
        }
        with torch.no_grad():
            expected = sides["dense mask"]()
            for run in sides.values():
                torch.testing.assert_close(run(), expected, atol=1e-5, rtol=1e-4)
            content[f"{size} x {size} positions, radius {RADIUS}, forward"] = alternate(sides, args.repeats)
    save("neighbourhood", content)


if __name__ == "__main__":
    main()
