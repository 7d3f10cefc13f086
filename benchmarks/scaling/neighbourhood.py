"""Neighbourhood attention in tiles up to 256 x 256 positions, and against a dense mask up to 64 x 64:
`python -m benchmarks.scaling.neighbourhood`. Memory is that of a pass in a fresh process, beyond what it holds before."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import DEVICE, alone, alternate, arguments, save, step_megabytes
from gcsa.layers.attention import attend_nearby

RADIUS, HEADS, DIM = 3, 4, 32
SIZES, DENSE = (32, 64, 128, 256), 64


class Tiles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return attend_nearby(x[0], x[1], x[2], RADIUS, "square", False).flatten(2, 4)


def tokens(size: int) -> tuple[nn.Module, Tensor]:
    return Tiles(), torch.randn(3, 1, HEADS, size, size, 1, DIM, device=DEVICE)


def near(size: int) -> Tensor:
    y, x = (axis.flatten() for axis in torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
    return (((y[:, None] - y).abs() <= RADIUS) & ((x[:, None] - x).abs() <= RADIUS)).to(DEVICE)


def main() -> None:
    args = arguments(__doc__)
    content = {}
    for size in SIZES:
        tiles, x = tokens(size)
        sides = {"tiles": lambda tiles=tiles, x=x: tiles(x)}
        if size <= DENSE:
            flat, mask = [t.flatten(2, 4) for t in x], near(size)
            sides["dense mask"] = lambda flat=flat, mask=mask: F.scaled_dot_product_attention(*flat, attn_mask=mask)
            torch.testing.assert_close(sides["tiles"](), sides["dense mask"](), atol=1e-5, rtol=1e-4)
        with torch.no_grad():
            times = alternate(sides, args.repeats)
        megabytes = alone(step_megabytes, partial(tokens, size), False, args.threads)
        content[f"{size} x {size} positions, radius {RADIUS}, forward"] = {**times, "tiles_megabytes": megabytes}
    save("neighbourhood", content)


if __name__ == "__main__":
    main()
