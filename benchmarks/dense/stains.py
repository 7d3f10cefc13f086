"""Which pictures in colour `gcsa segment --stain auto` reads by their haematoxylin, and what this changes where there are masks.

    python -m benchmarks.dense.stains gcsa_unet_tiny.nuclei --write benchmarks/results/stains.json

Other H&E: test images of PatchCamelyon, enlarged to double, StarDist's and scikit-image's examples and tests/stored/tissue.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image
from skimage import data as pictures
from stardist.data import test_image_he_2d

import gcsa
from benchmarks.common import keep
from gcsa._utils.arrays import Array
from gcsa.data.storage import data_root
from gcsa.images.pixels import is_grey
from gcsa.tasks.segmentation.data.datamodule import Nuclei
from gcsa.tasks.segmentation.metrics import InstanceScores

EVERY = 60
"""Of the 600 test images of PatchCamelyon."""
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "colorwheel", "hubble_deep_field", "retina", "rocket")
ROOT = Path(__file__).parents[2]


def kinds() -> Iterator[tuple[str, list[tuple[Array, Array | None]]]]:
    """Pictures (H, W, 3), with their label maps where there are any, by their kind."""
    nuclei = Nuclei()
    for split, name in (("val", "validation"), ("test", "test")):
        examples = [nuclei.example(pair) for pair in nuclei.pairs[split]]
        yield f"H&E of the bowl, {name}", [(one.picture, one.labels) for one in examples if not is_grey(one.picture)]
    with h5py.File(data_root(None) / "pcam/camelyonpatch_level_2_split_test_x.h5") as opened:
        patches = opened["x"][::EVERY]
    enlarged = [np.asarray(Image.fromarray(patch).resize((192, 192), Image.Resampling.BICUBIC)) for patch in patches]
    stored = np.asarray(Image.open(ROOT / "tests/stored/tissue.png").convert("RGB"))
    others = [*enlarged, stored, np.asarray(test_image_he_2d()), pictures.immunohistochemistry()]
    yield "other H&E", [(picture, None) for picture in others]
    blue = [np.zeros_like(one.picture) for one in examples if is_grey(one.picture)][:10]
    for target, one in zip(blue, (one for one in examples if is_grey(one.picture)), strict=False):
        target[..., 2] = one.picture[..., 0]
    yield "fluorescence of the bowl in blue", [(picture, None) for picture in blue]
    yield (
        "photographs",
        [(np.ascontiguousarray(getattr(pictures, name)()[:400, :400, :3]), None) for name in PHOTOGRAPHS],
    )


def measured(predictor: Any, examples: list[tuple[Array, Array | None]]) -> dict[str, Any]:
    scores = {key: InstanceScores() for key in ("none", "haematoxylin", "auto")}
    row: dict[str, Any] = {"ood": [], "ood_stain": [], "chosen": 0}
    for picture, labels in examples:
        results = {key: predictor.predict(picture, stain=None if key == "none" else key) for key in scores}
        row["ood"].append(results["none"].ood_score)
        row["ood_stain"].append(results["haematoxylin"].ood_score)
        row["chosen"] += results["auto"].stain is not None
        if labels is not None:
            for key, score in scores.items():
                score.update(results[key].labels, labels)
    if examples[0][1] is not None:
        row["ap50"] = {key: float(score.compute()["ap50"]) for key, score in scores.items()}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="weights of a segmenter with an OOD score")
    parser.add_argument("--write", type=Path, required=True, help="the JSON file")
    args = parser.parse_args()
    predictor: Any = gcsa.load(args.model, task="segmentation").fold()
    found = {kind: measured(predictor, examples) for kind, examples in kinds()}
    keep(args.write, {"model": args.model, "kinds": found})


if __name__ == "__main__":
    main()
