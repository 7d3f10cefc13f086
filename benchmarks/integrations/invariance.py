"""How far features of real patches move when the patches are turned or mirrored, ours and timm's common backbones:
`python -m benchmarks.integrations.invariance`.

Writes benchmarks/results/integrations/invariance.json. Features are those in front of the classifier. No weights of timm can be had
offline, so its networks have random weights (seed 0), and so have ours but gcsa_pooled_small.pcam; training has no reason to
make filters symmetric, but may make features more or less alike. The change is relative to the spread of the features over
the patches, for features of an untrained network may hardly depend on the image at all: 1.41 says that a turned patch is as
different as another patch. `found` is the share of patches that are their rotated copies' nearest neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import timm
import torch

from benchmarks.common import arguments, keep
from benchmarks.integrations.embeddings import WEIGHTS, batched
from benchmarks.integrations.patches import RESULTS, Features, elements, patches
from gcsa._utils.arrays import Array
from gcsa.tasks import load
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.testing import randomize

SIZE = 96
TIMM: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "resnet50": {},
    "efficientnet_b0": {},
    "convnext_tiny": {},
    "vit_small_patch16_224": {"img_size": SIZE},
    "swin_tiny_patch4_window7_224": {"img_size": SIZE},
}
OURS = ("gcsa_small", "gcsa_pooled_small", "gcsa_pyramid_tiny")


def changes(features: Features, pictures: Array) -> dict[str, float]:
    """The largest over the quarter turns, and over the mirror images, of the change relative to the spread over pictures, and
    the share of copies whose nearest picture is their own."""
    upright = features(pictures)
    spread = np.linalg.norm(upright - upright.mean(0))
    found, turns, mirrors = [], [0.0], [0.0]
    for name, move in elements().items():
        moved = features(move(pictures))
        (mirrors if "reflection" in name else turns).append(float(np.linalg.norm(moved - upright) / spread))
        distances = np.linalg.norm(moved[:, None] - upright, axis=2)
        found.append(float((distances.argmin(1) == np.arange(len(pictures))).mean()))
    return {"numbers": upright.shape[1], "turns": max(turns), "mirrors": max(mirrors), "found": float(np.mean(found))}


def main() -> None:
    args = arguments(__doc__, lambda parser: parser.add_argument("--patches", type=int, default=100))
    pictures = patches(args.patches)
    trained = load(WEIGHTS)
    predictors = {WEIGHTS: trained}
    for name in (*OURS, *TIMM):
        torch.manual_seed(0)
        model = timm.create_model(name, num_classes=2, **TIMM.get(name, {}))
        predictors[name] = ClassificationPredictor(randomize(model) if name in OURS else model, trained.preprocess)
    content: dict[str, Any] = {"patches": len(pictures), "size": SIZE, "seed": 0, "models": {}}
    for name, predictor in predictors.items():
        content["models"][name] = {
            "weights": "trained" if name == WEIGHTS else "random",
            **changes(batched(predictor.embedding, predictor.preprocess), pictures),
        }
        print(name, content["models"][name], flush=True)
    keep(RESULTS / "invariance.json", content)


if __name__ == "__main__":
    main()
