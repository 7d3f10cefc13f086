"""Handwritten digits that come with scikit-learn, randomly rotated: real scans that need no download."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gcsa.data.augment import RandomAffine
from gcsa.data.loaders import seeded_generator
from gcsa.data.splits import SPLIT_SEED, stratified_order
from gcsa.tasks.classification.data.base import GCSADataModule, Split

SIDE, DIGIT_SIZE = 28, 20
"""Pixels a side of the canvas, and of the scan on it: its diagonal still fits when it rotates."""


def upright_digits() -> tuple[Tensor, Tensor]:
    """scikit-learn's scans (1797, 1, 28, 28), from 0 to 1, and their labels."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    images = torch.from_numpy(scans.images).float()[:, None] / 16
    images = F.interpolate(images, size=(DIGIT_SIZE, DIGIT_SIZE), mode="bilinear", align_corners=False)
    return F.pad(images, [(SIDE - DIGIT_SIZE) // 2] * 4), torch.from_numpy(scans.target).long()


class Digits(GCSADataModule):
    """1,258 / 180 / 359 class-balanced images: 8 x 8 scans enlarged to 20 x 20 on a 28 x 28 canvas, each
    rotated.

    Source: the test part of UCI's "Optical Recognition of Handwritten Digits" (Alpaydin, Kaynak 1998),
    through `sklearn.datasets.load_digits`. Angles (uniform in 360 degrees) and splits are the same in every
    run.
    """

    name = "digits"
    num_classes, in_chans, image_size = 10, 1, SIDE
    class_names = tuple("0123456789")
    mean, std = (0.1570,), (0.2770,)

    def read_fit(self) -> tuple[Split, Split]:
        whole, parts = self._read()
        return whole._replace(rows=parts[2]), whole._replace(rows=parts[1])

    def read_test(self) -> Split:
        whole, parts = self._read()
        return whole._replace(rows=parts[0])

    def _read(self) -> tuple[Split, tuple[Tensor, ...]]:
        images, labels = upright_digits()
        # Bicubic resampling overshoots, which bytes cannot hold.
        images = RandomAffine(degrees=180)(images, seeded_generator(SPLIT_SEED)).clamp(0, 1)
        split = Split.whole((images * 255).round().byte(), labels, "scikit-learn's load_digits")
        test, val = round(0.2 * len(labels)), round(0.1 * len(labels))
        order = stratified_order(labels, SPLIT_SEED)
        return split, (order[:test], order[test : test + val], order[test + val :])
