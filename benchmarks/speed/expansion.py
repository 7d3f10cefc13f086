"""Where expansions pay: k x k convolutions on one against the same with dense filters: `python -m benchmarks.speed.expansion`.

How many times faster they are in evaluation, folded, and in training (forward and backward, with the assembly of the
filters), one of a map or the three of queries, keys and values. `gcsa.layers.conv_plans.should_expand` follows from this table.
On a CPU, for other devices take dense filters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.common import CPU, DEVICE, arguments, forward_and_step, save
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.conv_plans import Plan, should_expand
from gcsa.layers.qkv import convolve_together
from gcsa.models.folding import fold

# Group, fields in and out, kernel size, stride, convolutions of one map, batch and side.
SHAPES = (
    ("c4", 48, 96, 8, 4, 1, 4, 56),
    ("c4", 24, 48, 8, 4, 1, 8, 56),
    ("d4", 24, 48, 8, 4, 1, 4, 56),
    ("c4", 48, 96, 4, 2, 1, 4, 56),
    ("d4", 16, 16, 3, 1, 3, 32, 12),
    ("c8", 24, 24, 3, 1, 3, 16, 12),
    ("c8", 12, 12, 3, 1, 3, 64, 7),
    ("c4", 12, 12, 5, 1, 3, 64, 14),
    ("d4", 8, 8, 4, 2, 1, 32, 48),
    ("d4", 8, 16, 4, 2, 1, 32, 24),
    ("d4", 8, 8, 5, 1, 1, 32, 24),
    ("d4", 16, 16, 3, 1, 1, 32, 12),
    ("d4", 48, 48, 3, 1, 1, 8, 14),
)


class Together(nn.Module):
    """Several convolutions of one map."""

    def __init__(self, convs: list[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, H', W', N, O), the fields of each in turn."""
        return torch.cat(list(convolve_together(list(self.convs), x)), -1)


def build(group: str, fields: int, out: int, kernel_size: int, stride: int, count: int) -> dict[str, Together]:
    """The same convolutions with dense filters and on an expansion, whatever the rule says."""
    sides = {}
    for side, plan in (("dense", Plan()), ("expansion", Plan("expansion", use_shared_expansion=True))):
        torch.manual_seed(0)
        options = dict(stride=stride, plan=plan)
        sides[side] = Together([SteerableConv2d(fields, out, kernel_size, group, **options) for _ in range(count)])
    return sides


def main() -> None:
    args = arguments(__doc__)
    if DEVICE != CPU:
        raise SystemExit("expansions are for CPUs: run this on a machine without a GPU")
    content: dict[str, Any] = {}
    for group, fields, out, kernel_size, stride, count, batch, side in SHAPES:
        sides = build(group, fields, out, kernel_size, stride, count)
        order = sides["dense"].convs[0].order
        x = torch.randn(batch, side, side, order, fields, requires_grad=True)
        torch.testing.assert_close(sides["expansion"](x), sides["dense"](x), atol=1e-4, rtol=1e-4)
        times = forward_and_step({name: (fold(layer), x) for name, layer in sides.items()}, args.repeats, ("forward",))
        times |= forward_and_step(
            {name: (layer, x) for name, layer in sides.items()}, args.repeats, ("forward_backward",)
        )
        key = f"{group}, {count} of {fields * order} to {out * order} channels, k {kernel_size}, stride {stride}, "
        functions = sides["dense"].convs[0].weight.shape[-1]
        content[f"{key}batch {batch} of {side} x {side}"] = {
            **{mode: row["dense"]["median_ms"] / row["expansion"]["median_ms"] for mode, row in times.items()},
            "chosen": should_expand(order, kernel_size, functions, count * out * order),
        }
    save("expansion", content)


if __name__ == "__main__":
    main()
