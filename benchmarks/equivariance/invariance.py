"""Invariance and equivariance error of every registered model, float32: `python -m benchmarks.equivariance.invariance`.

Biases, norms and scales are random. Small images (two positions a side at the last stage, 16 pixels at least). The
45 degrees are on smooth images of the model's own size, relative to the spread of the logits over the images.
"""

from __future__ import annotations

import timm
import torch

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import arguments, save
from gcsa.actions import act
from gcsa.evaluation.audit import smooth_rotation_error
from gcsa.models.backbone import Backbone
from gcsa.testing import randomize, relative_error

AT_45 = ("gcsa_tiny", "gcsa_small")
GROUPS = ("c4", "c8", "d4", "d8")


@torch.no_grad()
def errors(model: Backbone, image: torch.Tensor) -> dict[str, float]:
    """The largest relative error of logits and features over the exact elements, all in one forward pass."""
    exact = model.group.exact_elements
    turned = torch.cat([act(image, model.group, g, "image") for g in exact])
    features = model.forward_features(turned)
    logits = model.forward_head(features)
    upright = [act(features[:1], model.group, g, model.feature_kind) for g in exact]
    return {
        "logits": max(relative_error(logits[i], logits[0]) for i in range(len(exact))),
        "features": max(relative_error(features[i], upright[i][0]) for i in range(len(exact))),
    }


def main() -> None:
    arguments(__doc__)
    content = {}
    names = timm.list_models(["gcsa*", "gcnn*", "gsa*"])
    for name, group in ((name, group) for name in names for group in GROUPS):
        model = randomize(timm.create_model(name, group=group)).eval()
        channels, size, _ = model.default_cfg["input_size"]
        side = max(2 * model.size_divisor, 16)
        row = {"elements": len(model.group.exact_elements), **errors(model, torch.randn(1, channels, side, side))}
        if name in AT_45 and group in ("c4", "c8"):
            row["at_45_degrees"] = smooth_rotation_error(model, channels, size)
        content[f"{name}_{group}"] = row
        print(name, group, row, flush=True)
    save("invariance", content)


if __name__ == "__main__":
    main()
