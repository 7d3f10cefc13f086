"""The test set, read once for each run: `python -m benchmarks.learning.final pcam "vit+turns+shifts" ...`.

Takes the weights that all seeds of a system left in outputs/queue, those of the epoch that the validation split chose, and
writes accuracy, AUROC, the images that are wrong (their numbers from 0), how sure and how right answers are, the share of at
most 2,000 images whose class a quarter turn changes, and of seed 0, which is drawn, the accuracy at every turn of at most 1,000 into
their results in benchmarks/results/learning as `test`. What is there already is not read again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

import gcsa
from benchmarks.learning.queue import ROOT
from gcsa._utils.atomic import write_json
from gcsa.data.storage import data_root
from gcsa.evaluation.metrics import predict, reliability, score
from gcsa.evaluation.rotations import rotate, rotation_curve
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.evaluate import draw_sample
from gcsa.training.results import git_commit

RESULTS = ROOT / "benchmarks/results"
TURNED_IMAGES, QUARTER_TURNED_IMAGES = 1000, 2000
OF_TRAINING = ("root", "augment", "batch_size", "limit_train", "train_on_val", "drop_last", "download")


def quarter_turned(batches: Iterable[tuple[Tensor, Tensor]], count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches with images (B, C, H, W) turned by `count` quarter turns."""
    return ((rotate(images, 90 * count), labels) for images, labels in batches)


def read_test(result: Path, commit: str | None) -> str:
    """Reads the test set for the run with this `result`, unless that was done before; returns a line for the screen.

    `commit` is that of this code, from before any result was written.
    """
    content = json.loads(result.read_text())
    run = f"{result.stem}, seed {content['seed']}"
    if "test" in content:
        return f"{run}: read before"
    options = {key: value for key, value in content["config"]["data"].items() if key not in OF_TRAINING}
    if "path" in options:  # of which the results hold the last part
        options["path"] = data_root(None) / options["path"]
    data = create_datamodule(options.pop("name"), batch_size=100, **options)
    data.prepare_data()
    data.setup("test")
    folder = ROOT / "outputs/queue" / result.relative_to(RESULTS).with_suffix("") / "weights"
    model = gcsa.load(folder).fold().network
    logits, labels = predict(model, data.test_dataloader())
    scores = score(logits, labels)
    found = {"accuracy": scores.accuracy, "auroc": scores.auroc, "images": scores.images}
    some = draw_sample(data, "test", min(QUARTER_TURNED_IMAGES, scores.images))
    classes = torch.stack([predict(model, quarter_turned(some, count))[0].argmax(1) for count in range(4)])
    changed = (classes != classes[0]).any(0).float().mean().item()
    wrong = (logits.argmax(1) != labels).nonzero().flatten().tolist()
    more = {"wrong": wrong, "reliability": asdict(reliability(logits, labels))}
    if content["seed"] == 0:
        more["turns"] = asdict(rotation_curve(model, draw_sample(data, "test", min(TURNED_IMAGES, scores.images))))
    write_json(result, {**content, "test": {**found, "changed_by_turns": changed, **more, "commit": commit}})
    return f"{run}: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="of benchmarks/results/learning, such as pcam")
    parser.add_argument("systems", nargs="+", help='such as "vit+turns+shifts"')
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    commit = git_commit()
    for system in args.systems:
        results = sorted((RESULTS / "learning" / args.folder).glob(f"seed*/{system}.json"))
        if not results:
            parser.error(f"{args.folder} has no results of {system!r}")
        for result in results:
            print(read_test(result, commit), flush=True)


if __name__ == "__main__":
    main()
