"""What published weights know of their training images, and how well it tells other images apart:

    python -m benchmarks.learning.ood gcsa_unet_tiny.nuclei nuclei
    python -m benchmarks.learning.ood gcsa_unet_tiny.nuclei nuclei --unseen PICTURES

The first writes the entry `ood_score` into weights/NAME/config.json, from training and validation images as train.py does at its end, and
benchmarks/results/ood/NAME.json: the share of test images (of a segmenter, also of a small part of each) whose OOD score is above 1, and
the OOD score of pictures of scikit-image, of text lines and of plankton, which are neither nuclei, tissue nor digits. AUROC is that of
the OOD score, test images against all of these. The score was chosen on these pictures. So the second adds the OOD score of those in a
folder, which must not have been looked at before: images/ and data/ of github.com/scikit-image/skimage-tutorials, files above 10 kB.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from skimage import data as pictures
from sklearn.metrics import roc_auc_score

import gcsa
from benchmarks.learning.queue import ROOT
from gcsa._utils.arrays import Array
from gcsa._utils.atomic import write_json
from gcsa._utils.published import published
from gcsa.data.storage import data_root
from gcsa.images.folders import list_images
from gcsa.images.reader import as_picture, read_picture
from gcsa.images.windows import ArrayImage
from gcsa.tasks.classification.evaluate import draw_sample
from gcsa.tasks.classification.task import Task as Classification, fit_ood_scorer as ood_scorer_of_classifier
from gcsa.tasks.segmentation.data.datamodule import Nuclei
from gcsa.tasks.segmentation.task import fit_ood_scorer as ood_scorer_of_segmenter, views
from gcsa.training.results import git_commit, machine
from gcsa.weights import annotate

PICTURES = (
    *("astronaut", "brick", "camera", "cell", "chelsea", "clock", "coffee", "coins", "grass", "gravel", "horse"),
    *("hubble_deep_field", "microaneurysms", "moon", "page", "retina", "rocket", "text"),
)
"""Of scikit-image: photographs, textures, pages, the sky, eyes, and a cell in phase contrast."""
SIDE = 512
"""Pixels a side, at most, that are cut from the middle of a picture."""
FILES = {"text line": "ocr_lines/fr17_roman_print", "plankton": "plankton/test"}
"""Folders of the data sets of which every k-th image is taken, `COUNT` in all."""
COUNT = 20
TESTED = 200
"""Test images of a classifier."""


def others(channels: int) -> dict[str, Array]:
    """Name to picture (H, W, channels) of images that no published classifier or segmenter is for."""
    found = {}
    for name in PICTURES:
        picture = np.asarray(getattr(pictures, name)())
        picture = as_picture(picture * np.uint8(255) if picture.dtype == bool else picture, 3)
        found[name] = middle(picture)
    for what, folder in FILES.items():
        files = sorted((data_root(None) / folder).rglob("*.png")) or sorted((data_root(None) / folder).rglob("*.jpg"))
        for number, file in enumerate(islice(files, 0, None, max(1, len(files) // COUNT))):
            if number < COUNT:
                found[f"{what} {number + 1}"] = read_picture(file, 3)
    return found if channels == 3 else {name: in_grey(picture) for name, picture in found.items()}


def of_classifier(predictor: Any, data: Any) -> tuple[list[float], dict[str, float]]:
    """The OOD score of test images, and that of other pictures by their name."""
    predictor.ood_scorer = ood_scorer_of_classifier(predictor.network, data)
    network = predictor.with_ood_scores()
    with torch.inference_mode():
        tested = [row for images, _ in draw_sample(data, "test", TESTED) for row in network(images)[:, -1].tolist()]
    strange = others(len(predictor.preprocess.mean))
    results = predictor.predict([picture.squeeze() for picture in strange.values()])
    return tested, {name: result.ood_score for name, result in zip(strange, results, strict=True)}


def of_segmenter(predictor: Any, data: Nuclei) -> tuple[list[float], dict[str, float]]:
    """As `of_classifier`."""
    data.setup(None)
    predictor.ood_scorer = ood_scorer_of_segmenter(predictor, data)

    def score(picture: Array) -> float:
        return float(predictor.ood_scorer(predictor.features(ArrayImage(picture))[None]))

    tested = [score(picture) for example in data.images("test") for picture in views(example.picture)]
    return tested, {name: score(picture) for name, picture in others(predictor.network.in_chans).items()}


def of_folder(predictor: Any, folder: Path) -> dict[str, float]:
    """The OOD score of the middle of each picture of 8 bits in a folder."""
    found = {}
    for file in list_images(folder):
        picture = middle(read_picture(file, 3))
        if picture.dtype != np.uint8:
            continue
        if predictor.kind == "segmentation":
            levels = picture if predictor.network.in_chans == 3 else in_grey(picture)
            score = float(predictor.ood_scorer(predictor.features(ArrayImage(levels))[None]))
        else:
            colours = len(predictor.preprocess.mean)
            score = predictor.predict(picture if colours == 3 else in_grey(picture)[..., 0]).ood_score
        found[file.name] = score
    return found


def middle(picture: Array) -> Array:
    """At most `SIDE` pixels a side of a picture (H, W, C)."""
    top, left = (max(0, (side - SIDE) // 2) for side in picture.shape[:2])
    return picture[top : top + SIDE, left : left + SIDE]


def in_grey(picture: Array) -> Array:
    """A picture (H, W, 3) of 8 bits in one channel (H, W, 1)."""
    return picture.mean(2, keepdims=True).round().astype(np.uint8)


def report(data: str, tested: list[float], strange: dict[str, float]) -> dict[str, Any]:
    """The content of the JSON file, from the OOD score of test images and that of other pictures."""
    labels = [0] * len(tested) + [1] * len(strange)
    return {
        "data": data,
        "test_images": len(tested),
        "false_alarms": float(np.mean(np.array(tested) > 1)),
        "auroc": float(roc_auc_score(labels, tested + list(strange.values()))),
        "ood_score_of_test_images": {str(q): float(np.quantile(tested, q)) for q in (0.5, 0.9, 0.99, 1.0)},
        "others": strange,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of published weights")
    parser.add_argument("data", help="the configuration of its data, such as rotmnist")
    parser.add_argument("--unseen", type=Path, help="folder of pictures, for the second")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    commit = git_commit()
    folder = published(args.name)
    assert folder is not None
    path: Path = ROOT / "benchmarks/results/ood" / f"{args.name}.json"
    if args.unseen is not None:
        predictor: Any = gcsa.load(folder)
        predictor.fold()
        print(write_json(path, json.loads(path.read_text()) | {"unseen": of_folder(predictor, args.unseen)}))
        return
    annotate(folder, ood_score=None)  # one of another form would be refused
    predictor = gcsa.load(folder)
    if predictor.kind == "segmentation":
        data: Any = Nuclei(in_chans=predictor.network.in_chans)
        predictor.fold()
        tested, strange = of_segmenter(predictor, data)
    else:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config: Any = OmegaConf.to_container(compose("train", [f"data={args.data}", "data.batch_size=32"]))
        data = Classification().build_data(config)
        predictor.fold()
        tested, strange = of_classifier(predictor, data)
    annotate(folder, ood_score=predictor.ood_scorer.entry())
    content = report(args.data, tested, strange)
    path.parent.mkdir(parents=True, exist_ok=True)
    print(write_json(path, content | {"model": args.name, "commit": commit, "machine": machine()}))


if __name__ == "__main__":
    main()
