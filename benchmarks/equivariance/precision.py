"""How far half precision moves the class scores, and their invariance under quarter turns: `python -m benchmarks.equivariance.precision`.

Random weights, biases, norms and scales; `IMAGES` random images of the model's own size. For each way to compute: the
largest relative change of the logits of an image under an exact element (`invariance`), the largest distance of the
logits of upright images from those in float64 (`rounding`), and the share of the turned images whose class is that of the
upright one. "autocast" keeps weights in float32; "weights" converts them, and the kernel tables, too.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext

import timm
import torch
from torch import Tensor

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import arguments, save
from gcsa.actions import act
from gcsa.models.backbone import Backbone
from gcsa.testing import randomize, relative_error

MODELS = ("gcsa_tiny", "gcsa_small", "gcsa_linear_tiny", "gcsa_pyramid_tiny")
IMAGES = 4
WAYS = {
    "float32": (torch.float32, None),
    "bfloat16, autocast": (torch.float32, torch.bfloat16),
    "bfloat16, weights": (torch.bfloat16, None),
    "float16, autocast": (torch.float32, torch.float16),
    "float16, weights": (torch.float16, None),
}
"""Dtype of the weights, and that of autocast."""


@torch.no_grad()
def logits(model: Backbone, images: Tensor, dtype: torch.dtype, autocast: torch.dtype | None) -> Tensor:
    """The logits (elements, B, classes) of the images under each exact element, in float64."""
    context: AbstractContextManager[object] = torch.autocast("cpu", autocast) if autocast else nullcontext()
    model = copy.deepcopy(model).to(dtype)
    with context:
        turned = [model(act(images, model.group, g, "image").to(dtype)) for g in model.group.exact_elements]
    return torch.stack(turned).double()


def errors(name: str) -> dict[str, dict[str, float]]:
    """The errors of each way to compute."""
    model = randomize(timm.create_model(name)).eval()
    channels, size, _ = model.default_cfg["input_size"]
    images = torch.randn(IMAGES, channels, size, size, generator=torch.Generator().manual_seed(0))
    exact = logits(model, images.double(), torch.float64, None)[0]
    errors_by_way = {}
    for way, (dtype, autocast) in WAYS.items():
        turned = logits(model, images, dtype, autocast)
        pairs = [(element[i], turned[0][i]) for element in turned for i in range(IMAGES)]
        errors_by_way[way] = {
            "invariance": max(relative_error(moved, upright) for moved, upright in pairs),
            "rounding": max(relative_error(turned[0][i], exact[i]) for i in range(IMAGES)),
            "same_class": sum(int(moved.argmax() == upright.argmax()) for moved, upright in pairs) / len(pairs),
        }
    return errors_by_way


def main() -> None:
    arguments(__doc__)
    content = {}
    for name in MODELS:
        content[name] = errors(name)
        print(name, content[name], flush=True)
    save("precision", content)


if __name__ == "__main__":
    main()
