"""Handwritten digits that come with scikit-learn, randomly rotated: real scans that need no download."""

import torch
from torch.nn import functional as F

from gcsa.data.augment import RandomAffine
from gcsa.data.loaders import seeded_generator
from gcsa.data.splits import SPLIT_SEED, stratified_order
from gcsa.tasks.classification.data.base import GCSADataModule, Split

DIGIT_SIZE = 20
"""Pixels a side of the scan on its 28 x 28 canvas: its diagonal still fits when it rotates."""


class Digits(GCSADataModule):
    """1,258 / 180 / 359 class-balanced images: 8 x 8 scans enlarged to 20 x 20 on a 28 x 28 canvas, each
    rotated.

    Source: the test part of UCI's "Optical Recognition of Handwritten Digits" (Alpaydin, Kaynak 1998),
    through `sklearn.datasets.load_digits`. Angles (uniform in 360 degrees) and splits are the same in every
    run.
    """

    name = "digits"
    num_classes, in_chans, image_size = 10, 1, 28
    class_names = tuple("0123456789")
    mean, std = (0.1570,), (0.2770,)

    def read_fit(self) -> tuple[Split, Split]:
        whole, parts = self._read()
        return whole._replace(rows=parts[2]), whole._replace(rows=parts[1])

    def read_test(self) -> Split:
        whole, parts = self._read()
        return whole._replace(rows=parts[0])

    def _read(self) -> tuple[Split, tuple[torch.Tensor, ...]]:
        from sklearn.datasets import load_digits

        scans = load_digits()
        labels = torch.from_numpy(scans.target).long()
        images = torch.from_numpy(scans.images).float()[:, None] / 16
        images = F.interpolate(images, size=(DIGIT_SIZE, DIGIT_SIZE), mode="bilinear", align_corners=False)
        images = F.pad(images, [(self.image_size - DIGIT_SIZE) // 2] * 4)
        # Bicubic resampling overshoots, which bytes cannot hold.
        images = RandomAffine(degrees=180)(images, seeded_generator(SPLIT_SEED)).clamp(0, 1)
        split = Split.whole((images * 255).round().byte(), labels, "scikit-learn's load_digits")
        test, val = round(0.2 * len(labels)), round(0.1 * len(labels))
        order = stratified_order(labels, SPLIT_SEED)
        return split, (order[:test], order[test : test + val], order[test + val :])
