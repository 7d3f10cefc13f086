"""What changes the answers of a classifier one step off the pixel grid.

    python -m benchmarks.equivariance.off_grid gcsa_pooled_small.pcam --data pcam --split val --output NAME

Each image is rotated by every multiple of 7.5 degrees, shifted, blurred, magnified, compressed, stained and lit otherwise; an answer
changes where the most probable class does. Images go on beyond their border by reflection, and are resampled bilinearly.
docs/results/off_grid/NAME.json holds, for each family, the share of answers that change in the mean over its members and for the
worst, and the lowest accuracy; and the same for the exact elements of d4, where an exact network changes none. Beside it stands the
share of changed images whose nearest neighbour by features, among all upright ones, still is the image itself.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torchmetrics.classification import MulticlassAUROC

import gcsa
from benchmarks.common import clock
from gcsa._utils.atomic import write_json
from gcsa.groups import group
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.augment import gaussian_blur
from gcsa.tasks.classification.data.colour import stained
from gcsa.tasks.classification.evaluate import draw_sample
from gcsa.training.results import git_commit, machine

Change = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) in 0..1 to images of the same shape."""


def resampled(
    images: Tensor, degrees: float = 0.0, magnification: float = 1.0, x: float = 0.0, y: float = 0.0
) -> Tensor:
    """Images (B, C, H, W) rotated about their centre, magnified and shifted by pixels, bilinearly, continued by reflection."""
    angle = math.radians(degrees)
    cos, sin = math.cos(angle) / magnification, math.sin(angle) / magnification
    height, width = images.shape[-2:]
    matrix = images.new_tensor([[cos, -sin, 2 * x / width], [sin, cos, 2 * y / height]]).expand(len(images), 2, 3)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def jpeg(images: Tensor, quality: int) -> Tensor:
    """Images (B, 3, H, W) as JPEG of this quality gives them back."""
    out = []
    for image in images.cpu():
        file = io.BytesIO()
        Image.fromarray((255 * image).round().byte().permute(1, 2, 0).numpy()).save(file, "JPEG", quality=quality)
        out.append(torch.from_numpy(np.asarray(Image.open(file)).copy()).permute(2, 0, 1).float() / 255)
    return torch.stack(out).to(images.device)


def stain(factors: tuple[float, float, float]) -> Change:
    """Multiplies the amounts of haematoxylin, eosin and the third stain."""
    factor = torch.tensor(factors).view(1, 3, 1, 1)
    return lambda images: stained(images, factor.to(images), images.new_zeros(1, 3, 1, 1)).clamp(0, 1)


FAMILIES: dict[str, dict[str, Change]] = {
    "exact": {f"element {g}": (lambda x, g=g: group("d4").act_on_grid(x, g)) for g in group("d4").exact_elements[1:]},
    "angle": {
        f"{step * 7.5:g} degrees": (lambda x, step=step: resampled(x, degrees=step * 7.5))
        for step in range(1, 48)
        if step % 12
    },
    "shift": {
        f"{x:g}, {y:g} pixels": (lambda image, x=x, y=y: resampled(image, x=x, y=y))
        for x, y in ((0.5, 0), (0, 0.5), (0.5, 0.5), (1, 0), (0, 1), (2, 0), (0, 2))
    },
    "blur": {
        f"sigma {sigma}": (lambda x, s=sigma: gaussian_blur(x, torch.full((len(x),), s))) for sigma in (0.5, 0.7, 1.0)
    },
    "magnification": {f"{m:g} x": (lambda x, m=m: resampled(x, magnification=m)) for m in (0.8, 0.9, 1.1, 1.25)},
    "jpeg": {"quality 50": lambda x: jpeg(x, 50), "quality 80": lambda x: jpeg(x, 80)},
    "stain": {str(f): stain(f) for f in ((0.9, 1.1, 1.0), (1.1, 0.9, 1.0), (0.9, 0.9, 1.0), (1.1, 1.1, 1.0))},
    "brightness": {f"{b:g} x": (lambda x, b=b: (b * x).clamp(0, 1)) for b in (0.9, 1.1)},
}


@torch.inference_mode()
def answers(network: Any, images: Tensor, mean: Tensor, std: Tensor, change: Change) -> tuple[Tensor, Tensor]:
    """Class scores (N, classes) and features of length 1 (N, C) of images (N, C, H, W) in 0..1."""
    scores, features = [], []
    for part in images.split(64):
        maps = network.forward_features((change(part) - mean) / std)
        scores.append(network.forward_head(maps))
        features.append(F.normalize(network.forward_head(maps, pre_logits=True), dim=1))
    return torch.cat(scores), torch.cat(features)


def measure(source: str, data: str, split: str, device: str = "cpu") -> dict[str, Any]:
    """The content of the JSON file."""
    predictor: Any = gcsa.load(source)
    network = predictor.network.to(device)
    sample = draw_sample(create_datamodule(data), split)
    mean, std = sample.images.mean, sample.images.std
    batches = list(sample)
    images = (torch.cat([batch for batch, _ in batches]) * std + mean).to(device)
    labels = torch.cat([targets for _, targets in batches]).to(device)
    mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (predictor.preprocess.mean, predictor.preprocess.std))
    upright, known = answers(network, images, mean, std, lambda x: x)
    own = torch.arange(len(images), device=device)
    families = {}
    for family, members in FAMILIES.items():
        rows = {}
        for name, change in members.items():
            scores, features = answers(network, images, mean, std, change)
            rows[name] = {
                "changed": float((scores.argmax(1) != upright.argmax(1)).float().mean()),
                "accuracy": float((scores.argmax(1) == labels).float().mean()),
                "neighbour_kept": float(((features @ known.T).argmax(1) == own).float().mean()),
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
        "data": data,
        "split": split,
        "images": len(images),
        "accuracy": accuracy,
        "auroc": auroc,
        "families": families,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="what gcsa.load takes, of a classifier")
    parser.add_argument("--data", default="pcam")
    parser.add_argument("--split", default="val", choices=["val", "test"])
    parser.add_argument("--output", required=True, metavar="NAME")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    started, _ = clock()
    content = measure(parsed.source, parsed.data, parsed.split, parsed.device)
    content |= {"seconds": round(clock()[0] - started, 1), "commit": git_commit(), "machine": machine()}
    folder = Path(__file__).parents[2] / "docs/results/off_grid"
    folder.mkdir(parents=True, exist_ok=True)
    print(write_json(folder / f"{parsed.output}.json", content))


if __name__ == "__main__":
    main()
