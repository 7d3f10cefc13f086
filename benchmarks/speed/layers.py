"""Every layer's speed against what the machine can do: `python -m benchmarks.speed.layers`.

Forward, and forward with backward, of each layer on one map (B, H, W, N, C); the achieved GFLOP/s as a share of the measured
rate of float32 matrix products; and, for the forward pass, of the roofline, the larger of FLOPs over that rate and of
bytes over the measured copy bandwidth, with input, output and parameters as the bytes. Convolutions of 3 x 3 can exceed
it: Winograd's algorithm (Lavin and Gray 2015, arXiv:1509.09308) needs fewer operations than are counted. The last row is what assembling a filter costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import DEVICE, alternate, arguments, machine_rates, save
from gcsa.groups import group
from gcsa.layers.attention import GroupConvSelfAttention
from gcsa.layers.blocks import Block, FieldMlp
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.norm import FieldNorm
from gcsa.layers.stem import LowPass

BATCH, SIZE = 8, 14
NARROW, WIDE = 16, 96  # fields of c8


class Assembly(nn.Module):
    """The filter of a layer, and nothing else."""

    def __init__(self, conv: SteerableConv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return self.conv.filter()


def layers() -> dict[str, tuple[nn.Module, Tensor]]:
    c8 = group("c8")

    def fields(count: int) -> Tensor:
        return torch.randn(BATCH, SIZE, SIZE, 8, count)

    narrow, wide = fields(NARROW), fields(WIDE)
    return {
        "lift 4 x 4, stride 2": (SteerableConv2d(3, NARROW, 4, c8, lift=True, stride=2), torch.randn(BATCH, 3, 28, 28)),
        "3 x 3": (SteerableConv2d(NARROW, NARROW, 3, c8), narrow),
        "depthwise 3 x 3": (SteerableConv2d(NARROW, NARROW, 3, c8, depthwise=True), narrow),
        "1 x 1": (SteerableConv2d(NARROW, NARROW, 1, c8), narrow),
        "1 x 1, wide, in irreps": (SteerableConv2d(WIDE, WIDE, 1, c8), wide),
        "norm": (FieldNorm(NARROW, 8), narrow),
        "low-pass": (LowPass(), narrow),
        "MLP": (FieldMlp(NARROW, 4 * NARROW, c8), narrow),
        "MLP, wide, in irreps": (FieldMlp(WIDE, 4 * WIDE, c8), wide),
        "G-CSA, spatial": (GroupConvSelfAttention(NARROW, 2, c8), narrow),
        "G-CSA, group": (GroupConvSelfAttention(NARROW, 2, c8, "group"), narrow),
        "G-CSA, linear": (GroupConvSelfAttention(NARROW, 2, c8, "linear"), narrow),
        "block": (Block(NARROW, 2, c8), narrow),
        "block, wide, separable": (Block(WIDE, 6, c8, separable=True), wide),
        "assembling a 3 x 3 filter": (Assembly(SteerableConv2d(NARROW, NARROW, 3, c8)), narrow),
    }


def measure(module: nn.Module, x: Tensor, rates: dict[str, float], repeats: int) -> dict[str, Any]:
    module, x = module.to(DEVICE), x.to(DEVICE).requires_grad_()

    def forward() -> Tensor:
        with torch.no_grad():
            return module(x)

    def step() -> None:
        module.zero_grad()
        module(x).square().mean().backward()

    with FlopCounterMode(display=False) as counter:
        out = forward()
    sides: dict[str, Callable[[], object]] = {"forward": forward, "forward_backward": step}
    times = alternate(sides, repeats)
    moved = sum(t.numel() * t.element_size() for t in (x, out, *module.parameters()))
    seconds = times["forward"]["median_ms"] / 1e3
    gflop = counter.get_total_flops() / 1e9
    bound = max(gflop / rates["matmul_gflops"], moved / 1e9 / rates["copy_gb_per_s"])
    return {
        **times,
        "gflop": gflop,
        "gflops": gflop / seconds,
        "of_matmul_rate": gflop / seconds / rates["matmul_gflops"],
        "of_roofline": bound / seconds,
    }


def main() -> None:
    args = arguments(__doc__)
    rates = machine_rates()
    rows = {name: measure(module, x, rates, args.repeats) for name, (module, x) in layers().items()}
    save("layers", {"shape": f"c8, batch {BATCH}, {SIZE} x {SIZE} positions", "rates": rates, "layers": rows})


if __name__ == "__main__":
    main()
