"""Time and memory of a forward pass as the image grows to 1024 x 1024: `python -m benchmarks.scaling.large_images`.

Neighbourhoods of radius 3 and linear attention on maps at 1/4 of the image (65,536 positions at 1024 x 1024), against
`spatial` attention everywhere, whose time grows with the square. One image, c4, two blocks of 16 fields; memory is that
of one pass in a fresh process, beyond what the process holds before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import DEVICE, alone, alternate, arguments, save, step_megabytes

SHAPE: dict[str, Any] = dict(
    model_name="gcsa_small",
    group="c4",
    fields=16,
    num_heads=2,
    depth=2,
    stem_strides=(4,),
    head_fields=0,
    separable=True,
)
SIDES: dict[str, dict[str, Any]] = {
    "neighbourhood of radius 3": dict(radius=3),
    "linear": dict(attention="linear"),
    "everywhere": dict(),
}
SIZES = (128, 256, 512, 1024)
LIMIT_MS = 60_000


def build(side: str, size: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return timm.create_model(**SHAPE, **SIDES[side]).to(DEVICE), torch.randn(1, 3, size, size, device=DEVICE)


def main() -> None:
    args = arguments(__doc__)
    times: dict[str, dict[int, dict[str, float]]] = {side: {} for side in SIDES}
    memory: dict[str, dict[int, float]] = {side: {} for side in SIDES}
    for side in SIDES:
        for size in SIZES:
            # Four times the positions: sixteen times the logits.
            if times[side] and 16 * times[side][size // 2]["median_ms"] > LIMIT_MS:
                break
            model, x = build(side, size)
            model.eval()
            with torch.no_grad():
                times[side][size] = alternate({side: lambda model=model, x=x: model(x)}, args.repeats)[side]
            memory[side][size] = alone(step_megabytes, partial(build, side, size), False, args.threads)
    save("large_images", {"shape": SHAPE, "times by side": times, "megabytes by side": memory})


if __name__ == "__main__":
    main()
