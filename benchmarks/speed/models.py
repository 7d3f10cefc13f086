"""Registered models as a user meets them, and two of timm's beside them: `python -m benchmarks.speed.models`.

Images a second in evaluation, as created and folded, and in training (forward and backward), GFLOP an image, the share
of the measured rate of float32 matrix products that evaluation reaches, and the peak memory of a training step in a fresh
process. On a GPU also bfloat16 autocast, alone and, without `--eager`, compiled (CUDA graphs).
`--model MODULE:NAME` adds an nn.Module of another project, for images of 3 x 96 x 96.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import DEVICE, alone, arguments, forward_and_step, machine_rates, save, step_megabytes
from gcsa.evaluation.cost import count_flops
from gcsa.models.backbone import Backbone
from gcsa.models.folding import fold
from gcsa.models.foreign import open_network

# Name to batch on a CPU; a GPU takes 16 times as many.
MODELS = {
    "gcsa_tiny": 32,
    "gcsa_small": 16,
    "gcsa_linear_small": 16,
    "gcnn_small": 16,
    "gcsa_pyramid_small": 2,
    "gcsa_base": 2,
    "resnet18": 16,
    "vit_tiny_patch16_224": 2,
}


class Autocast(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return self.model(x)


def build(name: str) -> tuple[nn.Module, Tensor]:
    """The model and a batch of images of its own size."""
    if ":" in name:
        model, size, batch = open_network(name, trust_code=True), (3, 96, 96), 16
    else:
        model, batch = timm.create_model(name, num_classes=10), MODELS[name]
        size = (3, 96, 96) if name == "resnet18" else model.default_cfg["input_size"]
    return model, torch.randn(batch if DEVICE.type == "cpu" else 16 * batch, *size)


def variants(model: nn.Module, compiled: bool) -> dict[str, nn.Module]:
    sides = {"as created": model}
    if isinstance(model, Backbone):
        sides["folded"] = fold(model.to(DEVICE))
    if DEVICE.type == "cuda":
        sides["bf16"] = Autocast(model)
    if DEVICE.type == "cuda" and compiled:
        sides["bf16, compiled"] = torch.compile(Autocast(model), mode="reduce-overhead")
    return sides


def measure(name: str, rates: dict[str, float], args: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    model, x = build(name)
    flops = count_flops(model, x[0])
    sides = {side: (module, x) for side, module in variants(model, not args.eager).items()}
    timings = forward_and_step(sides, args.repeats, modes=("forward",))
    sides.pop("folded", None)
    timings |= forward_and_step(sides, args.repeats, modes=("forward_backward",))
    best = min(side["median_ms"] for side in timings["forward"].values())
    return {
        **timings,
        "batch": len(x),
        "size": list(x.shape[1:]),
        "parameters": sum(p.numel() for p in model.parameters()),
        "gflop an image": flops / 1e9,
        "of_matmul_rate": flops * len(x) / best / 1e6 / rates["matmul_gflops"],
        "training_megabytes": alone(step_megabytes, partial(build, name), True, args.threads),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="MODULE:NAME, a model to add")
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=list(MODELS), help="of the models")
    parser.add_argument("--eager", action="store_true", help="on a GPU: nothing compiled, which takes minutes")


def main() -> None:
    args = arguments(__doc__, add_options)
    if args.model:
        open_network(args.model, trust_code=True)  # an error before minutes of work
    rates = machine_rates()
    names = [*args.only, *([args.model] if args.model else [])]
    rows = {Path(name).name: measure(name, rates, args) for name in names}
    save("models", {"rates": rates, "models": rows})


if __name__ == "__main__":
    main()
