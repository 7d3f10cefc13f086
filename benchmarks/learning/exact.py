"""A trained classifier as it is, and made exact by `gcsa.symmetry`: accuracy and AUROC on validation and test images.

    python -m benchmarks.learning.exact outputs/my_run/checkpoints/best.ckpt --data pcam --write benchmarks/results/exact/pcam_my_model_seed0.json

Options of the data stand behind `--set`: `--data image_folder --set path=plankton image_size=128 in_chans=3 pad=white`. The
files of several seeds, `..._seedN.json`, become one row of the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import keep, options_of
from gcsa.evaluation.metrics import predict, score
from gcsa.symmetry import Averaged, Canonical
from gcsa.tasks.classification.evaluate import draw_sample, model_and_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .ckpt of train.py or weights")
    parser.add_argument("--data", required=True)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="options of the data")
    parser.add_argument(
        "--labels", default="all", help="share of the labels that it was trained on, as the table calls it"
    )
    parser.add_argument("--group", default="d4")
    parser.add_argument("--limit", type=int, help="images of each split, all by default")
    parser.add_argument("--write", type=Path, help="the JSON file")
    args = parser.parse_args()
    network, data, _ = model_and_data(args.model, {"name": args.data, "seed": 0, **options_of(args.set)})
    kinds: dict[str, torch.nn.Module] = {
        "as it is": network,
        "Averaged": Averaged(network, args.group),
        "Canonical": Canonical(network, args.group),
    }
    rows: dict[str, Any] = {}
    for split in ("val", "test"):
        sample = draw_sample(data, split, args.limit)
        for name, model in kinds.items():
            found = score(*predict(model.eval(), sample))
            rows[f"{name}, {split}"] = {"accuracy": found.accuracy, "interval": found.interval, "auroc": found.auroc}
            print(f"{name}, {split}: {rows[f'{name}, {split}']}", flush=True)
    content = {
        "model": type(network).__name__,
        "data": args.data,
        "labels": args.labels,
        "group": args.group,
        "rows": rows,
        "limit": args.limit,
    }
    keep(args.write, content)


if __name__ == "__main__":
    main()
