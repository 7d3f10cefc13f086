"""Time of an image of 256 x 256 through each network of instances, and of a training step of four crops of 128 x 128.

`python -m benchmarks.dense.images`. The networks are those of benchmarks/learning/nuclei.yaml with random weights, folded where
that is possible, without the polygons, whose drawing is the same for all.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.common import alternate, arguments, forward_and_step, save
from gcsa.evaluation.cost import count_flops
from gcsa.models.folding import fold
from gcsa.tasks.segmentation import Segmenter

SIDES: dict[str, dict[str, Any]] = {
    "gcsa_unet_tiny": dict(name="gcsa_unet_tiny"),
    "c1_unet_tiny": dict(name="gcsa_unet_tiny", group="c1", fields=[24, 48, 96], stem_fields=[24]),
    "smp_unet_resnet18": dict(name="smp_unet_resnet18"),
}


def main() -> None:
    args = arguments(__doc__)
    networks = {name: Segmenter(**options).eval() for name, options in SIDES.items()}
    image, crops = torch.randn(1, 3, 256, 256), torch.randn(4, 3, 128, 128)
    folded = {name: fold(network) for name, network in networks.items()}
    with torch.inference_mode():
        forward = alternate({name: (lambda n=n: n(image)) for name, n in folded.items()}, args.repeats)
    steps = forward_and_step(
        {name: (network, crops) for name, network in networks.items()}, args.repeats, ("forward_backward",)
    )
    about = {
        name: {"parameters": sum(p.numel() for p in n.parameters()), "flops": count_flops(n, image[0])}
        for name, n in networks.items()
    }
    save("dense_images", {"image": forward, "step": steps["forward_backward"], "about": about})


if __name__ == "__main__":
    main()
