"""FixMatch (Sohn et al. 2020, arXiv:2001.07685) with the labels of a teacher's chain and no teacher, as a rival of its student:
`python -m benchmarks.learning.fixmatch --seed 0`.

A step sees 16 labelled images and 32 unlabelled ones. Each unlabelled image is seen twice: as the students see it, and distorted by
RandAugment and a grey rectangle. Where the network is sure of the first, its answer is the label of the second. Network, optimizer, schedule
and averaging are the student's, and the epochs take as long as teacher, answers and student together. The numbers are in
benchmarks/results/teach/plankton_3_fixmatch_seedN.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from pytorch_lightning.utilities import CombinedLoader
from torch import Tensor, nn
from torchvision.transforms import v2

from benchmarks.common import RESULTS, keep
from benchmarks.learning.teach import COMMON, HYBRID, ROOT, scores_of
from gcsa.data.loaders import BatchLoader
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.module import Classifier
from gcsa.training.run import best_checkpoint, build_trainer, quiet_lightning
from gcsa.training.task import data_options, model_options, task_options

NAME = "FixMatch"
OVERRIDES = (*HYBRID, "data.augment.degrees=45", "trainer.max_epochs=16", "data.limit_train=0.03")
SURE = 0.95
"""The probability above which an answer becomes a label, as in the paper."""


class FixMatch(Classifier):
    """A batch: (labelled images (B, C, H, W), labels (B,)), and (unlabelled images (2 M, C, H, W), anything): all, then all again."""

    distort: nn.Module

    def training_loss(self, batch: Any) -> Tensor:
        (labelled, labels), (unlabelled, _) = batch
        weak, strong = unlabelled.chunk(2)
        strong = torch.stack([self.distort(image) for image in strong])
        scores = self(torch.cat([labelled, weak, strong]))  # together, for batch norm
        known, own, guessed = scores.split([len(labelled), len(weak), len(strong)])
        probability, answers = own.detach().softmax(1).max(1)
        sure = (probability >= SURE).float()
        self.log("train/sure", sure.mean(), on_step=False, on_epoch=True, batch_size=len(weak))
        return F.cross_entropy(known, labels) + (F.cross_entropy(guessed, answers, reduction="none") * sure).mean()


class Endless:
    """The batches of a loader, pass after pass, each shuffled and augmented anew."""

    def __init__(self, loader: BatchLoader[Any]) -> None:
        self.loader, self.passes = loader, 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.loader.set_epoch(self.passes)
            self.passes += 1
            yield from self.loader


def distortion(mean: tuple[float, ...], std: tuple[float, ...]) -> v2.Compose:
    """RandAugment and a grey rectangle, of a normalised image on white (C, H, W)."""
    return v2.Compose(
        [
            v2.Normalize([-m / s for m, s in zip(mean, std, strict=True)], [1 / s for s in std]),
            v2.Lambda(lambda image: image.clamp(0, 1)),
            v2.RandAugment(fill=1.0),
            v2.Normalize(list(mean), list(std)),
            v2.RandomErasing(p=1.0, scale=(0.02, 0.25)),
        ]
    )


def fit(seed: int, threads: int) -> dict[str, Any]:
    """Trains the network, and measures the epoch that is best on the validation images."""
    folder = ROOT / f"outputs/teach/plankton_3_fixmatch/seed{seed}"
    run = (f"seed={seed}", f"output_dir='{folder}'", *COMMON, "trainer.enable_progress_bar=false")
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        cfg = compose("train", [*OVERRIDES, *run])
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    torch.set_num_threads(threads)
    pl.seed_everything(seed, verbose=False)
    quiet_lightning()
    options, optimizer = data_options(plain), plain["optimizer"]
    few = create_datamodule(**{**options, "batch_size": options["batch_size"] // 2})
    many = create_datamodule(**{**options, "limit_train": None, "views": 2})
    for data in (few, many):
        data.setup("fit")
    classifier = FixMatch(
        model_options(plain),
        schedule=optimizer.pop("schedule"),
        optimizer=optimizer,
        num_classes=few.num_classes,
        in_chans=few.in_chans,
        options=task_options(plain),
    )
    classifier.distort = distortion(few.mean, few.std)
    trainer = build_trainer(cfg, folder)
    loaders = CombinedLoader([Endless(few.make_loader("train", shuffle=True)), many.train_dataloader()], "min_size")
    began = time.monotonic()
    trainer.fit(classifier, loaders, few.val_dataloader())
    seconds = time.monotonic() - began
    best = torch.load(best_checkpoint(trainer).best_model_path, map_location="cpu", weights_only=True)
    classifier.load_state_dict(best["state_dict"])
    few.setup("test")
    return {
        "seed": seed,
        "overrides": {NAME: OVERRIDES},
        "networks": {NAME: scores_of(classifier.model, few)},
        f"{NAME}, seconds": seconds,
        f"{NAME}, share of sure answers at the end": float(trainer.callback_metrics["train/sure"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    file = RESULTS / f"teach/plankton_3_fixmatch_seed{args.seed}.json"
    if file.is_file():
        raise SystemExit(f"{file} is there: the test images are read once")
    content = fit(args.seed, args.threads)
    keep(file, content)
    print(content["networks"], flush=True)


if __name__ == "__main__":
    main()
