"""Objects in noise, and in parts of images that hold none, with and without the least contrast of `gcsa segment`.

    python -m benchmarks.dense.empty_fields gcsa_unet_tiny.nuclei --write benchmarks/results/empty_fields.json

The least contrast was chosen on validation images to which noise was added: where it is less, few of their nuclei are found. Parts without
objects are the first, from the upper left, of 192, 128 or 96 pixels a side in which no pixel of a mask is set, of all images of the nuclei.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import gcsa
from benchmarks.common import keep
from gcsa._utils.arrays import Array
from gcsa.images.windows import ArrayImage, contrast
from gcsa.tasks.segmentation import predict
from gcsa.tasks.segmentation.data.datamodule import Nuclei
from gcsa.tasks.segmentation.metrics import InstanceScores

SIGNALS = (20, 10, 6, 4, 3, 2, 1)
"""Range of an image between its percentiles, in deviations of the noise that is added."""
EVERY = 5
"""Of the validation images."""


def noise() -> dict[str, Array]:
    rng, shape = np.random.default_rng(0), (256, 256)
    values = {
        "normal(100, 3)": rng.normal(100, 3, shape),
        "poisson(2)": rng.poisson(2, shape),
        "poisson(0.1)": rng.poisson(0.1, shape),
        "uniform(0, 255)": rng.uniform(0, 255, shape),
        "exponential(20)": rng.exponential(20, shape),
        "blank": np.full(shape, 100.0),
    }
    return {name: array.round().clip(0, 255).astype(np.uint8)[..., None].repeat(3, 2) for name, array in values.items()}


def empty_part(labels: Array) -> tuple[slice, slice] | None:
    """The part of a label map (H, W) without objects."""
    for side in (192, 128, 96):
        for top in range(0, labels.shape[0] - side + 1, 32):
            for left in range(0, labels.shape[1] - side + 1, 32):
                part = slice(top, top + side), slice(left, left + side)
                if not labels[part].any():
                    return part
    return None


def measured(predictor: Any, picture: Array) -> dict[str, Any]:
    """Contrast of a picture, and the objects that are found in it by the network, and by `predict`."""
    least, predict.LEAST_CONTRAST = predict.LEAST_CONTRAST, 0.0
    everything = len(predictor.predict(picture).objects)
    predict.LEAST_CONTRAST = least
    found = contrast(ArrayImage(picture))
    return {"contrast": round(found, 2), "network": everything, "predict": 0 if found < least else everything}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="weights of a segmenter for instances")
    parser.add_argument("--write", type=Path, required=True, help="the JSON file")
    args = parser.parse_args()
    predictor: Any = gcsa.load(args.model, task="segmentation").fold()
    data = Nuclei()
    examples = {split: [data.example(pair) for pair in data.pairs[split]] for split in ("train", "val", "test")}
    whole = {split: min(contrast(example.image) for example in part) for split, part in examples.items()}
    parts = [
        measured(predictor, example.picture[part])
        for split in examples
        for example in examples[split]
        if (part := empty_part(example.labels)) is not None
    ]
    rng, rows = np.random.default_rng(0), []
    predict.LEAST_CONTRAST, least = 0.0, predict.LEAST_CONTRAST
    for signal in SIGNALS:
        scores, contrasts = InstanceScores(), []
        for example in examples["val"][::EVERY]:
            low, high = example.scale
            clean = (example.picture - low) / ((high - low) or 1) * 20_000 + 20_000
            noisy = clean + rng.normal(0, 20_000 / signal, clean.shape[:2])[..., None]
            picture = noisy.round().clip(0, 65_535).astype(np.uint16)
            contrasts.append(contrast(ArrayImage(picture)))
            scores.update(predictor.predict(picture).labels, example.labels)
        rows.append(
            {"signal": signal, "contrast": float(np.median(contrasts)), "ap50": float(scores.compute()["ap50"])}
        )
    predict.LEAST_CONTRAST = least
    below = [part for part in parts if part["contrast"] < least]
    content = {
        "model": args.model,
        "least_contrast": least,
        "least_of_images": whole,
        "noise": {name: measured(predictor, picture) for name, picture in noise().items()},
        "empty_parts": {
            "parts": len(parts),
            "below": len(below),
            "objects": {key: sum(part[key] for part in parts) for key in ("network", "predict")},
            "with_objects": {key: sum(part[key] > 0 for part in parts) for key in ("network", "predict")},
            "objects_below": sum(part["network"] for part in below),
        },
        "noise_added": rows,
    }
    keep(args.write, content)


if __name__ == "__main__":
    main()
