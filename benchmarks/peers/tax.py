"""What equivariance costs: G-CSA against timm's ViT of the same positions, width, depth and heads: `python -m benchmarks.peers.tax`.

C4, `spatial`, separable queries, keys and values, MLP ratio 4, 224 x 224 images and 14 x 14 positions, the stems
included: 12 D^2 multiply-adds a position and block for the ViT, 4.5 D^2 and the depthwise convolutions here (D = 4 C).
Forward is of the folded model. The depth is 12, the batch 8 for width 192 and 4 for the others.
"""

from __future__ import annotations

import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import DEVICE, arguments, forward_and_step, ratios, save
from gcsa.evaluation.cost import count_flops
from gcsa.export import fold
from gcsa.testing import equivariance_error

GROUP, ORDER, DEPTH = "c4", 4, 12
BATCHES = {192: 8, 384: 4, 768: 4}
OURS, PEER = "gcsa", "timm's ViT"


def build(width: int) -> dict[str, nn.Module]:
    heads = width // 64
    common = dict(img_size=224, num_classes=1000, depth=DEPTH)
    ours = timm.create_model("gcsa_base", group=GROUP, fields=width // ORDER, heads=heads, **common)
    vit = VisionTransformer(
        patch_size=16, embed_dim=width, num_heads=heads, class_token=False, global_pool="avg", **common
    )
    return {OURS: ours, PEER: vit}


def main() -> None:
    args = arguments(__doc__)
    content = {}
    for width, batch in BATCHES.items():
        models = build(width)
        x = torch.randn(batch if DEVICE.type == "cpu" else 32 * batch, 3, 224, 224)
        error = max(equivariance_error(models[OURS].eval(), x[:1], GROUP, g, "image", "invariant") for g in range(1, 4))
        folded = {**models, OURS: fold(models[OURS])}
        timings = forward_and_step({k: (m, x) for k, m in folded.items()}, args.repeats, modes=("forward",))
        timings |= forward_and_step({k: (m, x) for k, m in models.items()}, args.repeats, modes=("forward_backward",))
        content[f"width {width}"] = {
            **timings,
            "batch": len(x),
            "parameters": {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()},
            "flops an image": {name: count_flops(model, x[0]) for name, model in models.items()},
            "invariance_error": error,
            "tax": ratios(timings, OURS, PEER),
        }
    save("tax", content)


if __name__ == "__main__":
    main()
