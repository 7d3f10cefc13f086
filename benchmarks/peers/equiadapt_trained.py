"""equiadapt's chooser of poses and that of gcsa, both trained for one frozen classifier on the same images.

    uv run --with equiadapt==0.1.2 python -m benchmarks.peers.equiadapt_trained outputs/my_run/checkpoints/best.ckpt

The images are the training patches of PatchCamelyon, not augmented. `LearnedPose` learns as in benchmarks/learning/learned_pose.py:
its minutes are those of both losses, and of the classifier's passes over all poses. equiadapt learns as in its example for images:
the cross-entropy of the classifier through the chosen pose (straight-through), and `prior_weight` times its prior, which wants every
image upright; AdamW, learning rate 0.001. Its chooser has `--minutes`, and is validated four times.

Its example's network, of e2cnn, costs 88 passes, and a step of its custom one takes 4 seconds on one thread, so its optimized network is
trained, which sees the image in every pose: with 1e-4 of its contrast loss, as its example says. It sees the whole image, which is nearer
to exact than its example's crop.

Minutes are those of one thread of the CPU; equiadapt's are without its validation. The validation AUROC chooses the state of each chooser. The test
patches are read once, in all poses, by the classifier behind each chooser. A row that is in the file is not made again.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import RESULTS, keep
from benchmarks.learning.learned_pose import measured, read, train_chooser
from benchmarks.peers.equiadapt_peer import BATCH, Adapted, answers, changes, versions
from gcsa.evaluation.cost import count_flops
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.groups import group as make_group
from gcsa.symmetry import Canonical
from gcsa.tasks.classification.evaluate import draw_sample, model_and_data

FILE = RESULTS / "learned_pose/equiadapt_c4.json"
GROUP = "c4"
CONTRAST = 1e-4
"""The weight of the loss that the optimized network needs, in its example."""
VALIDATIONS = 4


def images_of(data: Any, split: str) -> tuple[Tensor, Tensor]:
    """Images (N, 3, S, S) and labels (N,) of a split, not augmented."""
    images, labels = zip(*draw_sample(data, split), strict=True)
    return torch.cat(images), torch.cat(labels)


@torch.no_grad()
def upright(network: nn.Module, images: Tensor) -> Tensor:
    """The scores (N, K) of images as they are."""
    with evaluation_mode(network):
        return torch.cat([network(some) for some in images.split(BATCH)])


def train_peer(
    network: nn.Module,
    prior: float,
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, Tensor],
    minutes: float,
    seed: int,
) -> tuple[Adapted, dict[str, Any]]:
    """equiadapt's optimized chooser in front of the frozen `network`, in the state of the best validation, and what is known of it."""
    torch.manual_seed(seed)
    system = Adapted(network, "optimized", 1.0, GROUP, train[0].shape[-1])
    canonicalizer = system.canonicalizer
    optimizer = torch.optim.AdamW([p for p in canonicalizer.parameters() if p.requires_grad], lr=1e-3)
    used, images, curve = 0.0, 0, []
    best: tuple[float, dict[str, Tensor]] | None = None
    while used < 60 * minutes:
        for rows in torch.randperm(len(train[1])).split(BATCH):
            start = time.process_time()
            canonicalizer.train()
            optimizer.zero_grad()
            loss = F.cross_entropy(system(train[0][rows]), train[1][rows])
            loss = loss + prior * canonicalizer.get_prior_regularization_loss()
            loss = loss + CONTRAST * canonicalizer.get_optimization_specific_loss()
            loss.backward()
            optimizer.step()
            used, images = used + time.process_time() - start, images + len(rows)
            if used < 60 * minutes * (len(curve) + 1) / VALIDATIONS:
                continue
            found = measured(upright(system, val[0]), val[1])
            curve.append({**found, "images": images})
            print(f"prior {prior:g}, {used / 60:.1f} minutes: {curve[-1]}", flush=True)
            if best is None or found["auroc"] > best[0]:
                best = found["auroc"], copy.deepcopy(canonicalizer.state_dict())
            if used >= 60 * minutes:
                break
    assert best is not None
    canonicalizer.load_state_dict(best[1])
    return system, {"minutes": used / 60, "epochs": images / len(train[1]), "curve": curve}


def train_ours(network: nn.Module, data: Any, epochs: int, seed: int) -> tuple[nn.Module, dict[str, Any]]:
    """The frozen `network` behind a trained `LearnedPose`, and what is known of it."""
    group = make_group(GROUP)
    val = read(network, data, "val", group)
    start = time.process_time()
    trained = train_chooser(read(network, data, "train", group), val, group, epochs, seed)
    minutes = (time.process_time() - start) / 60
    known = {"minutes": minutes, "epochs": epochs, "loss": trained.loss, "curve": trained.curves}
    return Canonical(network, group, trained.chooser), known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .ckpt of train.py or weights, of a classifier of PatchCamelyon")
    parser.add_argument("--minutes", type=float, default=4.8, help="of the CPU, for equiadapt's chooser")
    parser.add_argument("--prior", type=float, default=100.0, help="weight of its prior (default 100, its example's)")
    parser.add_argument("--epochs", type=int, default=12, help="of ours, with each of its two losses")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    network, data, _ = model_and_data(args.model, {"name": "pcam", "seed": 0})
    network.eval().requires_grad_(False)
    train, val, test = (images_of(data, split) for split in ("train", "val", "test"))
    makers: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
        "one pose": lambda: (network, {"minutes": 0.0}),
        "gcsa, Canonical, moments": lambda: (Canonical(network, GROUP), {"minutes": 0.0}),
        "gcsa, Canonical, LearnedPose": lambda: train_ours(network, data, args.epochs, args.seed),
        f"equiadapt, optimized, prior {args.prior:g}": lambda: train_peer(
            network, args.prior, train, val, args.minutes, args.seed
        ),
    }
    rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else {}
    alone = count_flops(network, val[0][0])
    about = {
        "model": "tf_efficientnet_lite0",
        "data": "pcam",
        "group": GROUP,
        "seed": args.seed,
        "versions": versions(),
    }
    for name, make in makers.items():
        if name in rows:
            continue
        system, known = make()
        scores = answers(system, test[0], GROUP)
        row = {"val": measured(upright(system, val[0]), val[1]), "test": measured(scores[0], test[1])}
        for module in system.modules():  # equiadapt keeps tensors, and is not copied then
            module.__dict__.pop("canonicalization_info_dict", None)
        row |= {"changes": changes(scores), "passes": count_flops(system, val[0][0]) / alone}
        rows[name] = row | known
        print(f"{name}: {rows[name]}", flush=True)
        keep(FILE, about | {"rows": rows})


if __name__ == "__main__":
    main()
