"""Draws docs/pictures/turning.png: `python -m benchmarks.picture`. Both models are the published ones, and nothing is drawn by hand."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import timm
import torch
from sklearn.datasets import load_digits

import gcsa
from gcsa.images.reader import read_picture

matplotlib.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
SIDE = 160
DIGIT = 24


def main() -> None:
    """Each row is computed from the turned picture; none of its results is turned afterwards."""
    segmenter = gcsa.load("gcsa_unet_tiny.nuclei")
    picture = read_picture(ROOT / "tests/stored/nuclei.png", 3)[:SIDE, :SIDE]
    classifier = timm.create_model("gcsa_tiny.rotmnist", pretrained=True).eval()
    mean, std = (classifier.pretrained_cfg[key][0] for key in ("mean", "std"))
    small = torch.from_numpy(load_digits().images[DIGIT] / 16).float()[None, None]
    digit = torch.nn.functional.pad(
        torch.nn.functional.interpolate(small, size=20, mode="bicubic").clamp(0, 1), [4] * 4
    )
    colours = np.random.default_rng(1).permuted(plt.get_cmap("turbo")(np.linspace(0.05, 1, 4096))[:, :3], axis=0)
    colours[0] = 0
    figure, axes = plt.subplots(4, 4, figsize=(9, 8.2), height_ratios=(3, 3, 1.6, 1.4), layout="constrained")
    for turn, (image, labels, shown, scores) in enumerate(axes.T):
        turned = np.ascontiguousarray(np.rot90(picture, turn))
        found = segmenter.predict(turned).labels
        image.imshow(np.clip(turned * (255 / np.percentile(picture, 99.5)), 0, 255).astype(np.uint8))
        image.set_title(f"{90 * turn} degrees")
        labels.imshow(colours[found])
        one = torch.rot90(digit, turn, (2, 3))
        with torch.no_grad():
            probabilities = classifier((one - mean) / std).softmax(1)[0]
        shown.imshow(1 - one[0, 0], cmap="gray")
        scores.bar(range(10), probabilities)
        scores.set(ylim=(0, 1), xticks=range(10), yticks=(0, 1))
        for axis in (image, labels, shown):
            axis.set_axis_off()
    for row, title in zip(axes[:, 0], ("image", "label map", "digit", "scores"), strict=True):
        row.text(-0.12, 0.5, title, transform=row.transAxes, rotation=90, va="center", ha="right")
    figure.savefig(
        ROOT / "docs/pictures/turning.png", dpi=90, pil_kwargs={"optimize": True}, metadata={"Software": None}
    )


if __name__ == "__main__":
    main()
