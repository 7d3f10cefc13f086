"""What changes the answers of a classifier one step off the pixel grid.

    python -m benchmarks.equivariance.off_grid gcsa_pooled_small.pcam --data pcam --split val --output NAME
    python -m benchmarks.equivariance.off_grid gcsa_pooled_small.pcam_steady --rotations 8 --output NAME
    python -m benchmarks.equivariance.off_grid gcsa_tiny.rotmnist --data rotmnist --limit 600 --output NAME
    python -m benchmarks.equivariance.off_grid outputs/my_run/weights --data image_folder \\
        --set path=data/plankton image_size=64 in_chans=1 pad=white --output NAME

Each image is rotated by every multiple of 7.5 degrees, shifted, blurred, magnified, compressed, stained and lit otherwise; an answer
changes where the most probable class does. Images go on beyond their border by reflection, and are resampled bilinearly.
benchmarks/results/off_grid/NAME.json (off_grid_test of the test split) holds, for each family, the share of answers that change in the mean over its members and for the
worst, and the lowest accuracy; and the same for the exact elements of d4, where an exact network changes none. Beside it stands the
share of changed images whose nearest neighbour by features, among all upright ones, still is the image itself. A folder of images
goes by its own name there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAUROC

import gcsa
from benchmarks.common import RESULTS, clock, keep, options_of
from gcsa.symmetry import RotationAveraged
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.evaluate import draw_sample
from gcsa.tasks.classification.off_grid import Change, families as families_of, moved


class Both(nn.Module):
    """A classifier of timm, from normalised images (B, C, H, W) to class scores (B, classes) and features (B, D)."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.network.forward_features(images)
        return self.network.forward_head(maps), self.network.forward_head(maps, pre_logits=True)


@torch.inference_mode()
def answers(network: nn.Module, images: Tensor, mean: Tensor, std: Tensor, change: Change) -> tuple[Tensor, Tensor]:
    """Class scores (N, classes) and features of length 1 (N, C) of images (N, C, H, W) in 0..1."""
    found = [network((change(part) - mean) / std) for part in images.split(64)]
    scores, features = (torch.cat(parts) for parts in zip(*found, strict=True))
    return scores, F.normalize(features, dim=1)


def measure(
    source: str,
    data: str,
    split: str,
    device: str = "cpu",
    limit: int | None = None,
    rotations: int | None = None,
    chosen: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The content of the JSON file, of `limit` images (None: all), balanced over the classes; as the mean over `rotations`; of the
    `chosen` families (None: all). `options` are those of the data."""
    predictor: Any = gcsa.load(source).fold()
    network: nn.Module = Both(predictor.network).to(device)
    if rotations is not None:
        network = RotationAveraged(network, predictor.group, rotations)
    sample = draw_sample(create_datamodule(data, **options), split, limit)
    mean, std = sample.images.mean, sample.images.std
    batches = list(sample)
    images = (torch.cat([batch for batch, _ in batches]) * std + mean).to(device)
    labels = torch.cat([targets for _, targets in batches]).to(device)
    mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (predictor.preprocess.mean, predictor.preprocess.std))
    upright, known = answers(network, images, mean, std, lambda x: x)
    families: dict[str, dict[str, Any]] = {}
    for family, members in families_of(images.shape[1]).items():
        if chosen is not None and family not in chosen:
            continue
        rows: dict[str, dict[str, float]] = {}
        for name, change in members.items():
            if family == "angle" and predictor.group.name == "d4" and (same := _same_angle(name)) in rows:
                rows[name] = rows[same]  # the group maps one onto the other
                continue
            scores, features = answers(network, images, mean, std, change)
            rows[name] = {
                "changed": moved(scores, upright, "classifier"),
                "accuracy": float((scores.argmax(1) == labels).float().mean()),
                "neighbour_kept": 1 - moved(features, known, "embedding"),
            }
        changed_shares = [row["changed"] for row in rows.values()]
        families[family] = {
            "mean_changed": float(np.mean(changed_shares)),
            "worst_changed": max(changed_shares),
            "lowest_accuracy": min(row["accuracy"] for row in rows.values()),
            "least_neighbours_kept": min(row["neighbour_kept"] for row in rows.values()),
            "members": rows,
        }
        print(family, {key: round(value, 4) for key, value in families[family].items() if key != "members"}, flush=True)
    accuracy = float((upright.argmax(1) == labels).float().mean())
    auroc = float(MulticlassAUROC(upright.shape[1])(upright.cpu(), labels.cpu()))
    return {
        "model": source,
        "rotations": rotations,
        "data": Path(options["path"]).name if "path" in options else data,
        "split": split,
        "images": len(images),
        "accuracy": accuracy,
        "auroc": auroc,
        "families": families,
    }


def _same_angle(name: str) -> str:
    """The angle from 0 to 45 degrees at which a network that is exact under d4 gives the same as at the angle `name`."""
    within = float(name.split()[0]) % 90
    return f"{min(within, 90 - within):g} degrees"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="what gcsa.load takes, of a classifier")
    parser.add_argument("--data", default="pcam")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="options of the data")
    parser.add_argument("--split", default="val", choices=["val", "test"])
    parser.add_argument("--limit", type=int, help="so many images, balanced over the classes; default all")
    parser.add_argument("--rotations", type=int, help="the mean over so many; default one pass")
    parser.add_argument("--families", nargs="+", metavar="FAMILY", choices=[*families_of(3)], help="default all")
    parser.add_argument("--output", required=True, metavar="NAME")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    started, _ = clock()
    content = measure(
        *(parsed.source, parsed.data, parsed.split, parsed.device, parsed.limit, parsed.rotations, parsed.families),
        **options_of(parsed.set),
    )
    folder = RESULTS / ("off_grid" if parsed.split == "val" else "off_grid_test")
    keep(folder / f"{parsed.output}.json", content | {"seconds": round(clock()[0] - started, 1)})


if __name__ == "__main__":
    main()
