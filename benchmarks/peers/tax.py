"""What equivariance costs: G-CSA against timm's ViT of the same positions, width, depth and heads: `python -m benchmarks.peers.tax`.

C4, `spatial`, separable queries, keys and values, MLP ratio 4, 224 x 224 images and 14 x 14 positions, the stems
included: 12 D^2 multiply-adds a position and block for the ViT, 4.5 D^2 and the depthwise convolutions here (D = 4 C).
Forward is of the folded model. The depth is 12, the batch 8 for width 192 and 4 for the others.

Which way is the fastest depends on the processor. So both are taken as they are and compiled, and the ViT also with its
linear layers as 1 x 1 convolutions, which another library computes; the tax is the fastest of ours over the fastest of its.
A width takes five to ten minutes on two cores: `--widths 768` measures one, and leaves the others in the results.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import timm
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import DEVICE, RESULTS, arguments, forward_and_step, machine_folder, save
from gcsa.evaluation.cost import count_flops
from gcsa.models.folding import fold
from gcsa.testing import equivariance_error
from gcsa.training.results import git_commit, machine

GROUP, ORDER, DEPTH = "c4", 4, 12
BATCHES = {192: 8, 384: 4, 768: 4}
OURS, PEER = "gcsa", "timm's ViT"


class AsConvolution(nn.Module):
    """A linear layer on (B, T, C), computed by the library of convolutions as `gcsa.layers.conv` calls it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        image = x.unsqueeze(1).permute(0, 3, 1, 2)
        out = F.conv2d(image, self.weight[:, :, None, None], self.bias, dilation=2 if DEVICE.type == "cpu" else 1)
        return out.permute(0, 2, 3, 1).squeeze(1)


def with_convolutions(model: nn.Module) -> nn.Module:
    """A copy of a ViT whose blocks have `AsConvolution` for their linear layers."""
    model = copy.deepcopy(model)
    for name, linear in [pair for pair in model.named_modules() if isinstance(pair[1], nn.Linear)]:
        if name.startswith("blocks."):
            model.set_submodule(name, AsConvolution(linear))
    return model


def build(width: int) -> dict[str, nn.Module]:
    heads = width // 64
    common = dict(img_size=224, num_classes=1000, depth=DEPTH)
    ours = timm.create_model("gcsa_base", group=GROUP, fields=width // ORDER, num_heads=heads, **common)
    vit = VisionTransformer(
        patch_size=16, embed_dim=width, num_heads=heads, class_token=False, global_pool="avg", **common
    )
    return {OURS: ours, PEER: vit}


def fastest(times: dict[str, Any], side: str) -> float:
    """The shortest median of all ways of a side."""
    return min(row["median_ms"] for name, row in times.items() if name.partition(", ")[0] == side)


def measure(width: int, repeats: int) -> dict[str, Any]:
    torch.compiler.reset()  # or the batch of another width makes this one dynamic
    models = {name: model.to(DEVICE) for name, model in build(width).items()}
    batch = BATCHES[width] if DEVICE.type == "cpu" else 32 * BATCHES[width]
    x = torch.randn(batch, 3, 224, 224, device=DEVICE)
    error = max(equivariance_error(models[OURS].eval(), x[:1], GROUP, g, "image", "invariant") for g in range(1, 4))
    timings = {}
    for mode, ours in (("forward", fold(models[OURS])), ("forward_backward", models[OURS])):
        ways = {OURS: ours, PEER: models[PEER], f"{PEER}, with convolutions": with_convolutions(models[PEER])}
        for name in (OURS, PEER):
            ways[f"{name}, compiled"] = torch.compile(copy.deepcopy(ways[name]), dynamic=False)
        timings |= forward_and_step({name: (way, x) for name, way in ways.items()}, repeats, modes=(mode,))
    return {
        **timings,
        "batch": batch,
        "parameters": {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()},
        "flops an image": {name: count_flops(model, x[0]) for name, model in models.items()},
        "invariance_error": error,
        "tax": {mode: fastest(times, OURS) / fastest(times, PEER) for mode, times in timings.items()},
    }


def earlier(machine_info: dict[str, Any]) -> dict[str, Any]:
    """The rows that this machine has already, each with the commit that measured it."""
    file = RESULTS / machine_folder(machine_info) / "tax.json"
    content = json.loads(file.read_text()) if file.is_file() else {}
    return {name: {"commit": content["commit"], **row} for name, row in content.items() if name.startswith("width")}


def main() -> None:
    choices = list(BATCHES)
    args = arguments(
        __doc__, lambda parser: parser.add_argument("--widths", type=int, nargs="+", choices=choices, default=choices)
    )
    rows = {f"width {width}": {**measure(width, args.repeats), "commit": git_commit()} for width in args.widths}
    rows = earlier({**machine(), "gpu": None} if DEVICE.type == "cpu" else machine()) | rows
    save("tax", {f"width {width}": rows[f"width {width}"] for width in BATCHES if f"width {width}" in rows})


if __name__ == "__main__":
    main()
