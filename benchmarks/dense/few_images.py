"""A laboratory that the published weights have not seen: 2, 5 and 20 of its images, trained on and from random weights.

    python -m benchmarks.dense.few_images Coelho2009_ISBI_NuclearSegmentation runs/ --write benchmarks/results/few_images/gnf.json

The laboratory is `gnf` of Coelho et al. 2009 (doi:10.1109/ISBI.2009.5193098): U2OS cells in fluorescence, outlined by hand, in 48 images
whose nuclei are some 110 pixels wide; the repository luispedro/Coelho2009_ISBI_NuclearSegmentation on GitHub holds them. Of each image
the 512 x 512 pixels in the middle are taken. 20 images are for training and 20 for the test. `--shares` measures averages of the base with
the first run of `tuned` on the 8 others and on the first 25 validation images of `nuclei` of at most 256 x 256 pixels: by them
`adapter.base_share` was chosen. Thresholds are chosen on up to 5 of the training images themselves, as nothing else is at hand. In-domain is
the test set of `nuclei`. Rows and runs that are there are kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import gcsa
from benchmarks.common import keep
from gcsa._utils.arrays import Array
from gcsa._utils.atomic import write_json
from gcsa.images.reader import as_picture
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation.data.datamodule import Nuclei
from gcsa.tasks.segmentation.metrics import InstanceScores
from gcsa.tasks.segmentation.thresholds import choose_thresholds
from gcsa.training.adapt import average_with_base, averageable

BASE = "gcsa_unet_tiny.nuclei"
SIDE = 512
PARTS = {"train": slice(0, 20), "val": slice(20, 28), "test": slice(28, 48)}
VALIDATED = (25, 256 * 256)
"""Images of `nuclei` by which a share is chosen, and the most pixels that they have."""
STEPS = (
    "data.crop=160",
    "data.batch_size=2",
    "data.crops_per_image=100",
    "trainer.max_steps=200",
    "trainer.max_epochs=200",
)
SYSTEMS = {
    "averaged": ("experiment=nuclei_few",),
    "tuned": ("experiment=nuclei_few", "adapter.base_share=0"),
    "scratch": (
        "experiment=nuclei",
        "data=mask_folder",
        *STEPS,
        "trainer.check_val_every_n_epoch=200",
        "callbacks.ema.decay=0.95",
    ),
}
"""From the published weights, whose average with the trained ones is `averaged`; from random weights with the learning rate of `nuclei`,
and else the same."""
Pairs = list[tuple[Array, Array]]


def middle(picture: Array) -> Array:
    """The `SIDE` x `SIDE` pixels in the middle."""
    top, left = ((side - SIDE) // 2 for side in picture.shape[:2])
    return picture[top : top + SIDE, left : left + SIDE]


def laboratory(repository: Path) -> dict[str, Pairs]:
    """Pictures (H, W), uint8, with label maps (H, W), int32, of each of `PARTS`."""
    masks = sorted((repository / "data/preprocessed-data/gnf").glob("*.png"))
    order = np.random.default_rng(0).permutation(len(masks))
    pairs = []
    for mask in (masks[row] for row in order):
        picture = Image.open(repository / "data/images/dna-images/gnf" / mask.name).convert("L")
        pairs.append((middle(np.asarray(picture)), middle(np.asarray(Image.open(mask)).astype(np.int32))))
    return {name: pairs[rows] for name, rows in PARTS.items()}


def write_folder(folder: Path, parts: dict[str, Pairs]) -> None:
    """StarDist's layout, as `data=mask_folder` reads it."""
    for part, pairs in parts.items():
        for number, (picture, labels) in enumerate(pairs):
            for kind, content in (("images", picture), ("masks", labels.astype(np.uint16))):
                (folder / part / kind).mkdir(parents=True, exist_ok=True)
                Image.fromarray(content).save(folder / part / kind / f"{number:02}.png")


def train(folder: Path, output: Path, system: str, seed: int) -> float:
    """Trains as a user would, unless that is done; returns the CPU-seconds."""
    done = output / "cpu_seconds.json"
    if not done.is_file():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "train.py", *SYSTEMS[system], f"data.path={folder}", f"output_dir={output}"]
        subprocess.run([*command, "test=false", "logger=none", "threads=1", f"seed={seed}"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        write_json(done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return float(json.loads(done.read_text()))


def ap50(predictor: Any, pairs: Iterable[tuple[Array, Array]], scale: float | str = 1.0) -> float:
    """Average precision at an IoU of 0.5 over all objects."""
    scores = InstanceScores()
    for picture, labels in pairs:
        scores.update(predictor.predict(picture, scale=scale).labels, labels)
    return float(scores.compute()["ap50"])


def in_domain(split: str = "test") -> Iterator[tuple[Array, Array]]:
    """The images of a split of `nuclei`."""
    data = Nuclei()
    for example in map(data.example, data.listed(split)):
        yield example.picture, example.labels


def by_share(tuned: Path, parts: dict[str, Pairs], few: Pairs, share: float) -> dict[str, float]:
    """AP50 on the validation images of both kinds for the average of the base with the weights `tuned`; thresholds as of a run."""
    count, most = VALIDATED
    small = islice((pair for pair in in_domain("val") if pair[1].size <= most), count)
    predictor: Any = gcsa.load(tuned)
    average_with_base(predictor.network, averageable(gcsa.load(BASE).network), share)
    choose_thresholds(predictor, ((ArrayImage(as_picture(picture, 3)), labels) for picture, labels in few))
    return {"share": share, "laboratory": ap50(predictor, parts["val"]), "in_domain": ap50(predictor, small)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a checkout of the laboratory's images")
    parser.add_argument("runs", type=Path, help="folder of the training runs")
    parser.add_argument("--counts", type=int, nargs="+", default=(2, 5, 20))
    parser.add_argument("--systems", nargs="+", default=("averaged", "scratch"), choices=tuple(SYSTEMS))
    parser.add_argument(
        "--shares", type=float, nargs="+", default=(), help="of the base, to be compared on validation images"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, required=True, help="the JSON file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = laboratory(args.repository)
    before = json.loads(args.write.read_text()) if args.write.is_file() else {}
    rows: dict[str, dict[str, Any]] = before.get("rows", {})
    shares: list[dict[str, float]] = before.get("shares", [])

    def measure(name: str, key: str, score: Callable[[], float], **about: Any) -> None:
        row = rows.setdefault(name, about)
        if key not in row:
            row[key] = score()
            tell(name, row)

    def tell(name: str, row: dict[str, Any]) -> None:
        print(name, row, flush=True)
        content = {"base": BASE, "laboratory": "gnf, Coelho et al. 2009", "images": len(parts["test"])}
        keep(args.write, content | {"shares": shares, "rows": rows, "seed": args.seed})

    measure("published", "laboratory", lambda: ap50(gcsa.load(BASE), parts["test"]))
    for count in args.counts:
        folder, few = args.runs / f"images{count}", parts["train"][:count]
        if not folder.exists():
            write_folder(folder, {"train": few, "val": few[:5], "test": few[:1]})
        nuclei = sum(len(np.unique(labels[labels > 0])) for _, labels in few)
        for system in args.systems:
            run = args.runs / f"{system}{count}"
            seconds = train(folder, run, system, args.seed)
            weights = run / "weights"
            about = dict(system=system, images=count, nuclei=nuclei, cpu_seconds=seconds)
            measure(run.name, "laboratory", lambda weights=weights: ap50(gcsa.load(weights), parts["test"]), **about)
            if system != "scratch":
                measure(run.name, "in_domain", lambda weights=weights: ap50(gcsa.load(weights), in_domain()))
            if system == "tuned" and count == args.counts[0]:
                for share in sorted(set(args.shares) - {row["share"] for row in shares}):
                    shares.append(by_share(weights, parts, few, share))
                    tell("share", shares[-1])
    measure("published", "laboratory_auto", lambda: ap50(gcsa.load(BASE), parts["test"], "auto"))
    measure("published", "in_domain", lambda: ap50(gcsa.load(BASE), in_domain()))


if __name__ == "__main__":
    main()
