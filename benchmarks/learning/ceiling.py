"""How far the digits of rotated MNIST can be told apart: `python -m benchmarks.learning.ceiling RUN NAME`.

RUN is an output folder of `train.py` with benchmarks/learning/e2cnn.py, trained on all 12,000 images. Its accuracy on the 50,000
test images, and which of them it gets wrong, become benchmarks/results/ceiling/NAME.json. docs/pictures/shared_mistakes.png shows
the first 100 test images that every network of `ceiling_runs` gets wrong. Without RUN only the picture is drawn.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import gcsa
from benchmarks.common import RESULTS
from benchmarks.learning import e2cnn  # noqa: F401, which registers the network
from benchmarks.learning.queue import curve
from gcsa._utils.atomic import write_json
from gcsa.evaluation.metrics import predict, reliability, score
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.base import GCSADataModule
from gcsa.training.results import git_commit

COLUMNS, SHOWN = 20, 100


def ceiling_runs() -> dict[str, dict[str, Any]]:
    """The equivariant networks that have read the test set of rotated MNIST, by name, of seed 0."""
    paths = [path for name in ("", "_all") for path in (RESULTS / f"learning/rotmnist{name}/seed0").glob("g*.json")]
    runs = {str(path): json.loads(path.read_text()) for path in sorted([*paths, *(RESULTS / "ceiling").glob("*.json")])}
    return {name: run for name, run in runs.items() if "test" in run}


def read_test(run: Path, data: GCSADataModule) -> dict[str, Any]:
    """The content of the JSON file."""
    logits, labels = predict(gcsa.load(run / "weights").fold().network, data.test_dataloader())
    found = score(logits, labels)
    wrong = (logits.argmax(1) != labels).nonzero().flatten().tolist()
    more = {"wrong": wrong, "reliability": asdict(reliability(logits, labels)), "commit": git_commit()}
    test = {"accuracy": found.accuracy, "auroc": found.auroc, "images": found.images, **more}
    return {**json.loads((run / "results.json").read_text()), "curve": curve(run, validated=False), "test": test}


def picture(data: GCSADataModule) -> Image.Image:
    """The first test images that all runs get wrong, in rows."""
    shared = sorted(set.intersection(*(set(run["test"]["wrong"]) for run in ceiling_runs().values())))[:SHOWN]
    images = torch.cat([images for images, _ in data.test_dataloader()])[shared, 0]
    pixels = (255 * (images * data.std[0] + data.mean[0])).round().clamp(0, 255).byte().numpy()
    rows, side = len(pixels) // COLUMNS, pixels.shape[1]
    tiles = pixels[: rows * COLUMNS].reshape(rows, COLUMNS, side, side).transpose(0, 2, 1, 3)
    small = Image.fromarray(np.ascontiguousarray(tiles.reshape(rows * side, COLUMNS * side)))
    return small.resize((2 * small.width, 2 * small.height), Image.Resampling.NEAREST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("name", nargs="?")
    args = parser.parse_args()
    data = create_datamodule("rotmnist", batch_size=50)
    data.prepare_data()
    data.setup("test")
    (RESULTS / "ceiling").mkdir(exist_ok=True)
    if args.run is not None:
        print(write_json(RESULTS / f"ceiling/{args.name or args.run.name}.json", read_test(args.run, data)))
    picture(data).save(RESULTS.parents[1] / "docs/pictures/shared_mistakes.png", optimize=True)


if __name__ == "__main__":
    main()
