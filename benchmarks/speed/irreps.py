"""Where the irrep basis pays: a 1 x 1 convolution in it against the same with the dense filter: `python -m benchmarks.speed.irreps`.

How many times faster it is in evaluation, folded, and in training (forward and backward, with the assembly of the filter),
for groups, widths in and out, and batches of 14 x 14 positions. `gcsa.layers.conv_plans.should_use_irreps` follows from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import DEVICE, alternate, arguments, save
from gcsa.groups import group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.conv_plans import Plan
from gcsa.models.folding import fold

GROUPS = ("c4", "c8", "d4")
WIDTHS = ((192, 192), (192, 768), (384, 384), (384, 1536), (768, 768))
BATCHES = (1, 8, 32)


def layers(name: str, width: int, out: int) -> dict[str, SteerableConv2d]:
    """The same layer with the dense filter and in the irrep basis, whatever the rule says."""
    order = group(name).order
    plans = {"dense": Plan(), "irreps": Plan("irreps")}
    convolutions = {
        side: SteerableConv2d(width // order, out // order, 1, name, plan=plan).to(DEVICE)
        for side, plan in plans.items()
    }
    convolutions["irreps"].load_state_dict(convolutions["dense"].state_dict())
    return convolutions


def evaluate(module: torch.nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            module(x)

    return run


def train(module: torch.nn.Module, x: Tensor) -> Callable[[], object]:
    return lambda: module(x).square().mean().backward()


def main() -> None:
    args = arguments(__doc__)
    content: dict[str, Any] = {}
    for name in GROUPS:
        order = group(name).order
        for width, out in WIDTHS:
            sides = layers(name, width, out)
            folded = {side: fold(layer) for side, layer in sides.items()}
            for batch in BATCHES:
                x = torch.randn(batch, 14, 14, order, width // order, device=DEVICE, requires_grad=True)
                torch.testing.assert_close(sides["irreps"](x), sides["dense"](x), atol=1e-4, rtol=1e-4)
                modes = {
                    "folded": {side: evaluate(layer, x) for side, layer in folded.items()},
                    "forward": {side: evaluate(layer, x) for side, layer in sides.items()},
                    "forward_backward": {side: train(layer, x) for side, layer in sides.items()},
                }
                times = {mode: alternate(runs, args.repeats) for mode, runs in modes.items()}
                key = f"{name}, {width} to {out} channels, batch {batch}"
                content[key] = {
                    mode: side["dense"]["median_ms"] / side["irreps"]["median_ms"] for mode, side in times.items()
                }
    save("irreps", content)


if __name__ == "__main__":
    main()
