"""Accuracy under shifts of -8 to 8 pixels along x, as figure 1 of Horn et al. 2021 (arXiv:2102.07680): `python -m benchmarks.equivariance.shifts RUN...`.

Each RUN is an output folder of `train.py` on data=mnist or data=fashion_mnist; its name is the name of the curve. The
test images are those of class 1 (the digit 1, trousers) that lose no pixel by such a shift. All runs on one data set
must be named in one call; the other data set's curves stay.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import RESULTS, save
from gcsa.evaluation.rotations import shift_curve
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.evaluate import draw_sample, model_and_data

CLASS, MARGIN = 1, 8


def stays_inside(images: Tensor, margin: int) -> Tensor:
    """Which images (B, C, H, W) hold nothing but their darkest value in the outer `margin` columns: bool (B,)."""
    edges = torch.cat([images[..., :margin], images[..., -margin:]], -1)
    return (edges == images.amin()).flatten(1).all(1)


def movable(data: str) -> list[tuple[Tensor, Tensor]]:
    """Batches of the test images of class 1 that stay inside."""
    parts_inside = []
    for images, labels in draw_sample(create_datamodule(name=data, batch_size=500), "test"):
        chosen = (labels == CLASS) & stays_inside(images, MARGIN)
        parts_inside.append((images[chosen], labels[chosen]))
    images, labels = (torch.cat(parts) for parts in zip(*parts_inside, strict=True))
    return list(zip(images.split(250), labels.split(250), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="output folders of train.py")
    curves: dict[str, dict[str, object]] = {}
    commits = {}
    for run in parser.parse_args().runs:
        result = json.loads((run / "results.json").read_text())
        data = result["data"]
        model, _, _ = model_and_data(str(run / "checkpoints/best.ckpt"), {"name": data})
        curve = shift_curve(model.eval(), movable(data), "x")
        curves.setdefault(data, {})[run.name] = asdict(curve)
        commits[f"{data}/{run.name}"] = result["commit"]
        print(data, run.name, [f"{accuracy:.3f}" for accuracy in curve.accuracy], flush=True)
    path = RESULTS / "shifts.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    content = {data: before[data] for data in ("mnist", "fashion_mnist") if data in before}
    others = {
        run: commit for run, commit in before.get("trained_at", {}).items() if run.partition("/")[0] not in curves
    }
    save(
        "shifts",
        content | {data: {"curves": by_run} for data, by_run in curves.items()} | {"trained_at": others | commits},
    )


if __name__ == "__main__":
    main()
