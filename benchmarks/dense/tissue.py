"""Nuclei in H&E of other laboratories: a segmenter beside Otsu's threshold of haematoxylin with a watershed.

    python -m benchmarks.dense.tissue FOLDER gcsa_unet_tiny.nuclei --write benchmarks/results/tissue/monuseg.json

FOLDER holds MoNuSeg (Kumar et al. 2017, doi:10.1109/TMI.2017.2677499; CC BY-NC-SA 4.0): tissue at 40x as .tif and its outlines as Aperio's
.xml beside it or in `Annotations`, below MoNuSegTrainingData and MoNuSegTestData. The first are for choices: at which scale a network
reads, and how the threshold's image is smoothed. The second are the test. No network here was trained on either. "Brighter than the
background" counts objects whose mean brightness is above the median of the pixels outside the outlines: what a pathologist sees at once.
Every third image of the first folder is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image
from scipy import ndimage
from skimage.color import rgb2hed
from skimage.draw import polygon
from skimage.feature import peak_local_max
from skimage.filters import gaussian, threshold_otsu
from skimage.morphology import remove_small_objects
from skimage.segmentation import watershed

import gcsa
from benchmarks.common import keep
from gcsa._utils.arrays import Array
from gcsa.tasks.segmentation.choices import AUTO
from gcsa.tasks.segmentation.metrics import InstanceScores, OverlapScores
from gcsa.tasks.segmentation.predict import SegmentationPredictor

PARTS = {"validation": "MoNuSegTrainingData", "test": "MoNuSegTestData"}
SCALES = (1.0, 0.75)
SIGMAS = (1.0, 2.0, 3.0)
Pairs = list[tuple[Array, Array]]
Segment = Callable[[Array], Array]


def outlined(path: Path, shape: tuple[int, int]) -> Array:
    """The label map (H, W) of Aperio's outlines; where two overlap, the later one counts."""
    labels = np.zeros(shape, np.int32)
    for number, region in enumerate(ElementTree.parse(path).iter("Region"), 1):
        points = np.array([[float(one.get("Y", "0")), float(one.get("X", "0"))] for one in region.iter("Vertex")])
        if len(points) > 2:
            labels[polygon(points[:, 0], points[:, 1], shape)] = number
    return labels


def pairs(folder: Path) -> Iterator[tuple[Array, Array]]:
    """Pictures (H, W, 3), uint8, and label maps of those images whose outlines are there."""
    outlines = {path.stem: path for path in folder.rglob("*.xml")}
    for path in sorted(folder.rglob("*.tif")):
        if path.stem in outlines:
            picture = np.asarray(Image.open(path).convert("RGB"))
            yield picture, outlined(outlines[path.stem], picture.shape[:2])


def watershed_of_haematoxylin(sigma: float, picture: Array) -> Array:
    """The label map of what Otsu's threshold finds in smoothed haematoxylin, split where it is waisted; below 30 pixels left out."""
    stain = gaussian(rgb2hed(picture)[..., 0], sigma)
    mask = remove_small_objects(ndimage.binary_fill_holes(stain > threshold_otsu(stain)), max_size=30)
    distance = gaussian(ndimage.distance_transform_edt(mask), sigma)
    seeds = np.zeros(mask.shape, np.int32)
    for number, (row, column) in enumerate(peak_local_max(distance, min_distance=6, labels=ndimage.label(mask)[0]), 1):
        seeds[row, column] = number
    return np.asarray(watershed(-distance, seeds, mask=mask), np.int32)


def found_by(predictor: SegmentationPredictor, scale: float, stain: str | None, picture: Array) -> Array:
    """The label map of a network."""
    labels: Array = predictor.predict(picture, scale=scale, stain=stain).labels
    return labels


def measure(segment: Segment, examples: Pairs) -> dict[str, float]:
    """Dice, AP50, and the objects that are brighter than the background, of all."""
    overlap, instances = OverlapScores(2), InstanceScores()
    bright = total = 0
    for picture, labels in examples:
        found = segment(picture)
        overlap.update((found > 0).astype(np.int32), (labels > 0).astype(np.int32))
        instances.update(found, labels)
        light = picture.mean(2)
        numbers = np.unique(found[found > 0])
        means = np.atleast_1d(ndimage.mean(light, found, numbers)) if len(numbers) else np.zeros(0)
        bright += int((means > np.median(light[labels == 0])).sum())
        total += len(numbers)
    scores = {"dice": float(overlap.compute()["dice"]), "ap50": float(instances.compute()["ap50"])}
    return scores | {"objects": total, "brighter": bright}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", help="weights of segmenters")
    parser.add_argument("--write", type=Path, help="the JSON file")
    args = parser.parse_args()
    examples = {part: list(pairs(args.folder / name)) for part, name in PARTS.items()}
    examples["validation"] = examples["validation"][::3]
    trials: dict[str, dict[str, Segment]] = {
        "Otsu of haematoxylin, watershed": {f"sigma={one:g}": partial(watershed_of_haematoxylin, one) for one in SIGMAS}
    }
    for model in args.models:
        predictor: Any = gcsa.load(model)
        for stain in (None, "haematoxylin", AUTO):
            name = Path(model).name if stain is None else f"{Path(model).name} --stain {stain}"
            trials[name] = {f"scale={scale}": partial(found_by, predictor, scale, stain) for scale in SCALES}
    rows: dict[str, Any] = {}
    for system, options in trials.items():
        tried = {option: measure(segment, examples["validation"]) for option, segment in options.items()}
        chosen = max(tried, key=lambda option: tried[option]["dice"])
        rows[system] = {"validation": tried, "chosen": chosen, "test": measure(options[chosen], examples["test"])}
        print(system, rows[system], flush=True)
    keep(args.write, {"images": {part: len(found) for part, found in examples.items()}, "rows": rows})


if __name__ == "__main__":
    main()
