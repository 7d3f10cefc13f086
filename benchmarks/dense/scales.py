"""A segmenter on images of another size, stain and kind than it was trained on.

    python -m benchmarks.dense.scales gcsa_unet_tiny.nuclei --split val --write benchmarks/results/scales/gcsa_unet_tiny.nuclei.json

Average precision at an IoU of 0.5 on the nuclei, each image at half to twice its size, as it is and read at its own scale, all and by
colour; on negatives of the images; and
the objects that are found in photographs and textures of scikit-image, none of which shows nuclei.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skimage import data as pictures
from torch.nn import functional as F

import gcsa
from benchmarks.common import keep
from gcsa._utils.arrays import Array
from gcsa.images.pixels import is_grey
from gcsa.tasks.segmentation.data.crops import Example
from gcsa.tasks.segmentation.data.datamodule import Nuclei
from gcsa.tasks.segmentation.metrics import InstanceScores

SCALES = (0.5, 1.0, 2.0)
WITHOUT_NUCLEI = (
    "astronaut",
    "brick",
    "camera",
    "chelsea",
    "coffee",
    "coins",
    "grass",
    "gravel",
    "page",
    "text",
    "rocket",
)


def magnified(example: Example, factor: float) -> tuple[Array, Array]:
    """The picture (H, W, C), uint8, and labels (H, W) at `factor` times their size."""
    sides = [max(1, round(side * factor)) for side in example.labels.shape]
    picture = torch.from_numpy(example.picture.astype(np.float32)).permute(2, 0, 1)[None]
    smooth = F.interpolate(picture, size=sides, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    labels = F.interpolate(torch.from_numpy(example.labels)[None, None].double(), size=sides, mode="nearest-exact")
    return smooth.round().clamp(0, 255).to(torch.uint8).numpy(), labels[0, 0].int().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="weights of a segmenter")
    parser.add_argument("--split", default="val", choices=("val", "test"))
    parser.add_argument("--scales", type=float, nargs="+", default=SCALES)
    parser.add_argument("--write", type=Path, help="the JSON file")
    args = parser.parse_args()
    predictor: Any = gcsa.load(args.model)
    data = Nuclei()
    examples = [data.example(pair) for pair in data.listed(args.split)]
    rows: dict[str, dict[str, float]] = {}

    def measure(name: str, views: list[tuple[Array, Array]], scale: float | str = 1.0) -> None:
        groups = {"all": InstanceScores(), "grey": InstanceScores(), "coloured": InstanceScores()}
        for example, (picture, labels) in zip(examples, views, strict=True):
            found = predictor.predict(picture, scale=scale).labels
            groups["all"].update(found, labels)
            groups["grey" if is_grey(example.picture) else "coloured"].update(found, labels)
        rows[name] = {kind: float(scores.compute()["ap50"]) for kind, scores in groups.items()}
        print(name, {kind: round(value, 4) for kind, value in rows[name].items()}, flush=True)

    for factor in args.scales:
        views = [magnified(example, factor) for example in examples]
        measure(f"{factor:g}", views)
        if factor != 1:
            measure(f"{factor:g}, read with scale={1 / factor:g}", views, 1 / factor)
        measure(f"{factor:g}, read with scale=auto", views, "auto")
    measure("negative", [(255 - example.picture, example.labels) for example in examples])
    empty = {}
    for name in WITHOUT_NUCLEI:
        try:
            picture = getattr(pictures, name)()
        except Exception:  # scikit-image fetches some of them
            continue
        empty[name] = len(predictor.predict(picture if picture.ndim == 2 else picture[..., :3]).objects)
    print(empty)
    content = {
        "model": args.model,
        "split": args.split,
        "images": len(examples),
        "ap50": rows,
        "objects without nuclei": empty,
    }
    content |= {"prob_thresh": predictor.prob_thresh, "nms_thresh": predictor.nms_thresh}
    keep(args.write, content)


if __name__ == "__main__":
    main()
