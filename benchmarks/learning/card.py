"""What a model card says of published weights, measured: `python -m benchmarks.learning.card gcsa_tiny.rotmnist rotmnist`.

For a classifier it reads the test set as `gcsa evaluate model=NAME data=DATA copies=8` does. With a recogniser or an adapter of
one (`gcsa_ocr_tiny.fr17 fr17_roman_print`) it reads the test lines of that script, also turned; with a segmenter
(`gcsa_unet_tiny.nuclei nuclei`) the test images, also turned and mirrored. What it finds is kept in benchmarks/results/published/, and a
picture of the worst mistakes beside the weights. `python -m benchmarks.report` writes the cards.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from PIL import Image
from skimage.segmentation import mark_boundaries

import gcsa
from benchmarks.learning.queue import ROOT
from gcsa._utils.atomic import write_json
from gcsa._utils.published import list_models, list_weights, published
from gcsa.data.storage import data_root
from gcsa.evaluation.figures import save
from gcsa.tasks.base import Predictor
from gcsa.tasks.classification.evaluate import evaluate
from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import measure, text_scores
from gcsa.tasks.segmentation.data.datamodule import Nuclei
from gcsa.tasks.segmentation.evaluate import measure_transformed
from gcsa.tasks.segmentation.metrics import InstanceScores, changes
from gcsa.training.results import git_commit, machine
from gcsa.weights import read

RESULTS = ROOT / "benchmarks/results/published"
WORST_LINES = 6
WORST_IMAGES = 5


def keep(name: str, found: dict[str, Any]) -> None:
    """Writes what was found of the weights called `name`, and on what machine."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    print(write_json(RESULTS / f"{name}.json", {**found, "model": name, "machine": machine()}))


def keep_small(picture: Path, kept: Path) -> None:
    """Writes a picture in two thirds of its size and 128 colours, for it is shipped with the weights."""
    image = Image.open(picture).convert("RGB")
    image.resize((image.width * 2 // 3, image.height * 2 // 3)).quantize(128).save(kept)


def classifier(name: str, data: str, curve_images: int) -> None:
    """Evaluates the classifier called `name` on the test set of a configured data set."""
    folder, commit = published(name), git_commit()
    asked = [f"data={data}", "copies=8", f"curve_images={curve_images}", f"label={name}"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed = OmegaConf.to_container(compose("evaluate", asked))
    config = {key: value for key, value in composed.items() if key != "output_dir"} | {"model": name}
    with tempfile.TemporaryDirectory() as output:
        found = evaluate({**config, "model": f"local-dir:{folder}"}, Path(output))
        keep_small(Path(output) / "mistakes.png", folder / "mistakes.png")
    del found["figures"]
    keep(name, {**found, "commit": commit, "config": config})


def recognizer(name: str, base: str, script: str) -> None:
    """Reads the test lines of a script with the recogniser called `base`, on which the adapter called `name` is put if it is
    another."""
    commit = git_commit()
    predictor = gcsa.load(published(base), None if base == name else published(name))
    lines = list_lines(data_root(None) / "ocr_lines" / script, ("test",))
    worst_lines(predictor, lines, published(name) / "mistakes.png")
    found = measure(predictor, lines)
    keep(name, {"data": script, "split": "test", "lines": len(lines), "results": found, "commit": commit})


def worst_lines(predictor: Predictor, listed: Sequence[Line], file: Path) -> None:
    """Draws the test lines that the recogniser reads worst: their text, what was read, and the line."""
    lines = []
    for line, reading in zip(listed, predictor.predict([line.image for line in listed], "upright"), strict=True):
        image = predictor.preprocess(line, upright=True)[0]
        lines.append((text_scores([reading.text], [line.text]).cer, image, line.text, reading.text))
    worst = sorted(lines, key=lambda line: -line[0])[:WORST_LINES]
    figure = Figure(figsize=(9, 1.1 * len(worst)), dpi=80, layout="constrained")
    for panel, (rate, image, text, said) in zip(figure.subplots(len(worst), squeeze=False)[:, 0], worst, strict=True):
        panel.imshow(1 - image, cmap="gray")
        panel.axis("off")
        title = f"{text}\n{said}   ({rate:.0%} wrong)".replace("\u2e17", "=")  # a hyphen that the figure's font has not
        panel.set_title(title, fontsize=8, loc="left", parse_math=False)
    save(figure, file)


def segmenter(name: str) -> None:
    """Finds the objects in the test images of the nuclei with the segmenter called `name`."""
    commit = git_commit()
    predictor: Any = gcsa.load(published(name))
    data = Nuclei(in_chans=predictor.network.in_chans)
    data.setup("test")
    found, counts, scores = [], [], InstanceScores()
    for example in data.images("test"):
        labels, alone = predictor.predict(example.picture).labels, InstanceScores()
        for score in (alone, scores):
            score.update(labels, example.labels)
        counts.append(alone.counts[0].numpy())
        found.append((float(alone.compute()["ap50"]), example.picture, example.labels, labels))
    worst_objects(sorted(found, key=lambda image: image[0])[:WORST_IMAGES], published(name) / "mistakes.png")
    grey = [picture for _, picture, _, _ in found if (picture[..., 0] == picture[..., 1]).all()]
    stained = [picture for _, picture, _, _ in found if (picture[..., 0] != picture[..., 1]).any()]
    turning(predictor, [grey[0], stained[0]], published(name) / "turned.png")
    results = {score: float(value) for score, value in scores.compute().items()}
    results["ap50_interval"] = interval(np.stack(counts))
    turned = measure_transformed(predictor, ((example.picture, example.labels) for example in data.images("test")))
    about = {"data": data.name, "split": "test", "images": len(found)}
    keep(name, {**about, "results": results, "turned": turned, "commit": commit})


def interval(counts: np.ndarray) -> list[float]:
    """The 95 % interval of TP / (TP + FP + FN) over images drawn with replacement, from their counts (images, 3)."""
    rows = np.random.default_rng(0).integers(len(counts), size=(2000, len(counts)))
    sums = counts[rows].sum(1)
    return [float(value) for value in np.quantile(sums[:, 0] / sums.sum(1), (0.025, 0.975))]


def worst_objects(images: list[tuple[float, np.ndarray, np.ndarray, np.ndarray]], file: Path) -> None:
    """Draws the border of what was drawn by hand (green) and of what was found (magenta) on each picture."""
    figure = Figure(figsize=(9, 9 / len(images) + 0.4), dpi=120, layout="constrained")
    for panel, (score, picture, labels, found) in zip(figure.subplots(1, len(images)), images, strict=True):
        scaled = (picture / np.percentile(picture, 99.8)).clip(0, 1)
        marked = mark_boundaries(scaled, labels, color=(0, 1, 0), mode="inner")
        panel.imshow(mark_boundaries(marked, found, color=(1, 0, 1), mode="inner"))
        panel.set_title(f"AP50 {score:.2f}", fontsize=8)
        panel.axis("off")
    save(figure, file)


def turning(predictor: Predictor, pictures: list[np.ndarray], file: Path) -> None:
    """Draws pictures with the borders of their objects, the same turned by 90 degrees, and where the label map of the turned
    picture, turned back, is another."""
    figure = Figure(figsize=(7.5, 2.6 * len(pictures)), dpi=120, layout="constrained")
    for row, picture in zip(figure.subplots(len(pictures), 3, squeeze=False), pictures, strict=True):
        turned_picture = np.rot90(picture).copy()
        labels, turned = (predictor.predict(image).labels for image in (picture, turned_picture))
        for panel, shown, found in ((row[0], picture, labels), (row[1], turned_picture, turned)):
            scaled = (shown / np.percentile(shown, 99.8)).clip(0, 1)
            panel.imshow(mark_boundaries(scaled, found, color=(1, 0.9, 0), mode="inner"))
        pixels, _ = changes(labels, np.rot90(turned, -1))
        row[2].imshow(labels != np.rot90(turned, -1), cmap="gray", vmin=0, vmax=1)
        titles = (f"{labels.max()} objects", "the picture turned", f"{pixels} of {labels.size:,} pixels change")
        for panel, title in zip(row, titles, strict=True):
            panel.set_title(title, fontsize=9)
            panel.axis("off")
    save(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list_weights(), metavar="name", help=", ".join(list_weights()))
    parser.add_argument("data", help="the configuration of its data, such as rotmnist, or the script of its lines")
    parser.add_argument("--curve-images", type=int, default=1000, help="how many images turn and shift")
    args = parser.parse_args()
    base = args.name if args.name in list_models() else args.name.rpartition(".")[0]
    kind = read(published(base)).task
    if kind == "segmentation":
        segmenter(args.name)
    elif kind == "classification":
        classifier(args.name, args.data, args.curve_images)
    else:
        recognizer(args.name, base, args.data)


if __name__ == "__main__":
    main()
