"""Invariance and equivariance error of every registered model, float32: `python benchmarks/invariance.py`.

Biases, norms and scales are random. Small images (two positions a side at the last stage, 16 pixels at least). The
45 degrees are on smooth images of the model's own size, relative to the spread of the logits over the images.
"""

from __future__ import annotations

import timm
import torch
from common import arguments, save

import gcsa  # noqa: F401  (registers the models)
from gcsa.evaluation import invariance_error, smooth_turn_error, stage_errors
from gcsa.testing import randomize


def main() -> None:
    arguments(__doc__)
    content = {}
    for name in timm.list_models("gcsa*"):
        model = randomize(timm.create_model(name)).eval()
        size = max(2 * model.multiple, 16)
        images = torch.randn(2, model.in_chans, size, size)
        row = {
            "elements": len(model.group.exact_elements),
            "logits": invariance_error(model, images),
            "features": max(stage.exact for stage in stage_errors(model, images)),
        }
        if name in ("gcsa_tiny_c4", "gcsa_tiny_c8", "gcsa_small_c4", "gcsa_small_c8"):
            channels, size, _ = model.default_cfg["input_size"]
            row["at_45_degrees"] = smooth_turn_error(model, channels, size)
        content[name] = row
    save("invariance", content)


if __name__ == "__main__":
    main()
