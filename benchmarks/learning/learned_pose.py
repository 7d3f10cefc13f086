"""A chooser of poses that learns, for a frozen classifier: what it gains over one pose, beside moments and the mean of all poses.

    python -m benchmarks.learning.learned_pose outputs/my_run/checkpoints/best.ckpt --data pcam --write benchmarks/results/learned_pose/pcam_tf_efficientnet_lite0_seed0.json

`LearnedPose` is trained on the training images, by the cross-entropy against the pose in which the frozen network has the least loss, and
by the negative expected log probability of the right class under its own softmax. The validation AUROC chooses the epoch and the
loss. The test images are read once, at the end. "Best pose" knows the label: no chooser can do better.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import keep
from gcsa.evaluation.metrics import score
from gcsa.groups import Group, group as make_group
from gcsa.models.pose import LearnedPose
from gcsa.symmetry import moments
from gcsa.tasks.classification.evaluate import draw_sample, model_and_data

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "best pose": lambda scores, right: F.cross_entropy(scores, right.argmax(1)),
    "expected": lambda scores, right: -(scores.softmax(1) * right).sum(1).mean(),
}


@torch.inference_mode()
def read(network: nn.Module, data: Any, split: str, group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """Images (N, C, H, W), logits (N, |H|, K) of all poses, and labels (N,) of a split, not augmented."""
    images, logits, labels = [], [], []
    for batch, answers in draw_sample(data, split):
        images.append(batch)
        logits.append(torch.stack([network(group.act_on_grid(batch, k)) for k in range(group.order)], 1))
        labels.append(answers)
    return torch.cat(images), torch.cat(logits), torch.cat(labels)


def chosen(scores: Tensor, logits: Tensor) -> Tensor:
    """The logits (N, K) of the pose with the highest of scores (N, |H|)."""
    return logits[torch.arange(len(logits)), scores.argmax(1)]


@torch.no_grad()
def in_batches(chooser: Callable[[Tensor, Group], Tensor], images: Tensor, group: Group) -> Tensor:
    return torch.cat([chooser(batch, group) for batch in images.split(64)])


def measured(answers: Tensor, labels: Tensor) -> dict[str, Any]:
    """Accuracy and AUROC of logits (N, K)."""
    found = score(answers, labels)
    return {"accuracy": found.accuracy, "auroc": found.auroc}


@dataclass(frozen=True)
class Trained:
    """A chooser as the validation AUROC chose it: the loss and the epoch (from 1), and the validation metrics of all epochs, by loss."""

    chooser: LearnedPose
    loss: str
    epoch: int
    curves: dict[str, list[dict[str, Any]]]


def train_chooser(
    train: tuple[Tensor, Tensor, Tensor], val: tuple[Tensor, Tensor, Tensor], group: Group, epochs: int, seed: int
) -> Trained:
    """A `LearnedPose` for what `read` gives of the training and validation images."""
    curves: dict[str, list[dict[str, Any]]] = {}
    best: tuple[float, dict[str, Tensor], str, int] | None = None
    images, logits, labels = train
    right = logits.log_softmax(2)[torch.arange(len(labels)), :, labels]  # log probability, (N, |H|)
    for name, loss in LOSSES.items():
        torch.manual_seed(seed)
        chooser = LearnedPose(images.shape[1], group)
        steps = epochs * -(-len(images) // 32)
        optimizer = torch.optim.AdamW(chooser.parameters(), lr=2e-3, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
        curves[name] = []
        for epoch in range(epochs):
            chooser.train()
            for rows in torch.randperm(len(images)).split(32):
                optimizer.zero_grad()
                loss(chooser(images[rows], group), right[rows]).backward()
                optimizer.step()
                schedule.step()
            chooser.eval()
            found = measured(chosen(in_batches(chooser, val[0], group), val[1]), val[2])
            curves[name].append(found)
            print(f"{name}, epoch {epoch + 1}: {found}", flush=True)
            if best is None or found["auroc"] > best[0]:
                state = {key: value.clone() for key, value in chooser.state_dict().items()}
                best = found["auroc"], state, name, epoch + 1
    assert best is not None
    chooser = LearnedPose(images.shape[1], group)
    chooser.load_state_dict(best[1])
    return Trained(chooser.eval(), best[2], best[3], curves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .ckpt of train.py or weights")
    parser.add_argument("--data", required=True)
    parser.add_argument("--group", default="d4")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="the JSON file")
    args = parser.parse_args()
    group = make_group(args.group)
    network, data, _ = model_and_data(args.model, {"name": args.data, "seed": 0})
    network.eval()
    train, val = (read(network, data, split, group) for split in ("train", "val"))

    started = time.perf_counter()
    trained = train_chooser(train, val, group, args.epochs, args.seed)
    seconds = time.perf_counter() - started
    chooser = trained.chooser
    rows: dict[str, Any] = {}
    for split, (images, logits, labels) in {"val": val, "test": read(network, data, "test", group)}.items():
        answers = {
            "one pose": logits[:, 0],
            "canonical, moments": chosen(in_batches(moments, images, group), logits),
            "canonical, learned": chosen(in_batches(chooser, images, group), logits),
            "averaged": logits.mean(1),
            "best pose": chosen(logits.log_softmax(2)[torch.arange(len(labels)), :, labels], logits),
        }
        for name, answer in answers.items():
            rows[f"{name}, {split}"] = measured(answer, labels)
            print(f"{name}, {split}: {rows[f'{name}, {split}']}", flush=True)
    batch = images[:32]
    times = []
    for function in (network, lambda x: chooser(x, group)):
        with torch.inference_mode():
            function(batch)
            start = time.perf_counter()
            for _ in range(5):
                function(batch)
            times.append((time.perf_counter() - start) / 5)
    content = {"model": type(network).__name__, "data": args.data, "group": args.group, "seed": args.seed, "rows": rows}
    content |= {
        "chosen": {"loss": trained.loss, "epoch": trained.epoch},
        "curves": trained.curves,
        "passes": 1 + times[1] / times[0],
    }
    content |= {"parameters": sum(p.numel() for p in chooser.parameters()), "seconds": seconds}
    print({key: content[key] for key in ("chosen", "passes", "parameters", "seconds")})
    keep(args.write, content)


if __name__ == "__main__":
    main()
