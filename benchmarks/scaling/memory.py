"""Peak memory of a training step with and without activation checkpointing: `python -m benchmarks.scaling.memory`.

One fresh process a measurement: the growth of its largest resident size in forward and backward, beyond the model and the
images; the median of `--repeats`. Losses and gradients must agree first. What checkpointing costs in FLOPs stands in
imagenet_plan.json.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import alone, arguments, save, step_megabytes

SHAPES = {"gcsa_small": (16, 3, 96, 96), "gcsa_pyramid_small": (4, 3, 224, 224)}
"""Images (B, C, H, W) of each model."""


def build(name: str, checkpointing: bool) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10).train()
    model.set_grad_checkpointing(checkpointing)
    return model, torch.randn(SHAPES[name])


def step(model: nn.Module, images: Tensor) -> float:
    """The loss; the gradients stay in the model."""
    model.zero_grad()
    loss = model(images).square().mean()
    loss.backward()
    return float(loss.detach())


def difference(name: str) -> dict[str, float]:
    """How far losses and gradients with and without checkpointing are apart, relative to the largest gradient."""
    sides = {}
    for checkpointing in (False, True):
        model, images = build(name, checkpointing)
        loss = step(model, images[:1])
        sides[checkpointing] = loss, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    (loss, gradient), (again_loss, again) = sides[False], sides[True]
    return {"loss": abs(loss - again_loss), "gradient": ((gradient - again).abs().max() / gradient.abs().max()).item()}


def main() -> None:
    args = arguments(__doc__)
    content: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        content[name] = {"images": shape, "difference": difference(name)}
        if max(content[name]["difference"].values()) > 1e-5:
            raise RuntimeError(f"{name} learns something else with checkpointing: {content[name]['difference']}")
        for label, checkpointing in (("kept", False), ("checkpointed", True)):
            network = partial(build, name, checkpointing)
            peaks = [alone(step_megabytes, network, True, args.threads) for _ in range(args.repeats)]
            content[name][label] = {"median_megabytes": median(peaks), "megabytes": peaks}
    save("memory", content)


if __name__ == "__main__":
    main()
