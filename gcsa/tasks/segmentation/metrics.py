"""Scores of label maps, and their change when the image is rotated or reflected."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import multiclass_confusion_matrix

from gcsa.tasks.segmentation.losses import classes
from gcsa.tasks.segmentation.stars import Labels, numbered

IOU_THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Intersection over union from which a predicted object matches a drawn one."""


class OverlapScores(Metric):
    """Dice score and IoU of the pixels of all images: of the objects together where there are two classes, and of more the mean
    over those but the background that occur."""

    full_state_update = False
    counts: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.add_state("counts", torch.zeros(num_classes, num_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predicted: Labels, labels: Labels) -> None:
        """Adds the label maps (H, W) of one image."""
        first, second = (classes(part, self.num_classes).to(self.device) for part in (predicted, labels))
        self.counts += multiclass_confusion_matrix(first, second, self.num_classes)

    def compute(self) -> dict[str, Tensor]:
        """dice, iou."""
        both = self.counts.double().diagonal()[1:]
        either = (self.counts.sum(0) + self.counts.sum(1))[1:]
        occurring = max(1, int((either > 0).sum()))
        dice, iou = 2 * both / either.clamp_min(1), both / (either - both).clamp_min(1)
        return {"dice": dice.sum() / occurring, "iou": iou.sum() / occurring}


class InstanceScores(Metric):
    """Average precision TP / (TP + FP + FN) of the objects of all images at each of `IOU_THRESHOLDS`, panoptic quality (Kirillov
    et al. 2019, arXiv:1801.00868) at 0.5, and the mean over images of the average precision at 0.5; counted by
    `stardist.matching`."""

    full_state_update = False
    counts: Tensor
    matched: Tensor
    by_image: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(len(IOU_THRESHOLDS), 3, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("matched", torch.zeros(1, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("by_image", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Labels, labels: Labels) -> None:
        """Adds the label maps (H, W) of one image."""
        from stardist.matching import matching

        results = matching(numbered(labels), numbered(predicted), thresh=IOU_THRESHOLDS)
        counts = torch.tensor([[r.tp, r.fp, r.fn] for r in results], dtype=torch.float64)
        self.counts += counts.to(self.counts)
        self.matched += results[0].mean_matched_score * results[0].tp
        if counts[0].sum():  # else there are neither drawn nor predicted objects
            self.by_image += torch.tensor([counts[0, 0] / counts[0].sum(), 1.0]).to(self.by_image)

    def compute(self) -> dict[str, Tensor]:
        """ap50, ap60, ... ap90, pq, ap50_by_image."""
        tp, fp, fn = self.counts.unbind(1)
        precision = tp / (tp + fp + fn).clamp_min(1)
        scores = {f"ap{round(100 * iou)}": value for iou, value in zip(IOU_THRESHOLDS, precision, strict=True)}
        quality = self.matched[0] / (tp + (fp + fn) / 2)[0].clamp_min(0.5)
        return {**scores, "pq": quality, "ap50_by_image": self.by_image[0] / self.by_image[1].clamp_min(1)}


def build_metrics(output: str, num_classes: int) -> dict[str, Metric]:
    """New metrics for a network of this output. Each takes label maps (predicted, drawn) and computes scores by name."""
    if output == "instances":
        return {"overlap": OverlapScores(2), "instances": InstanceScores()}
    return {"overlap": OverlapScores(num_classes)}


def changes(labels: Labels, others: Labels) -> tuple[int, int]:
    """The number of pixels and of objects that differ between two label maps (H, W) of one image, whatever their numbers are.

    Two objects correspond if each shares more pixels with the other than with any third; the background corresponds to the
    background. A pixel changes if its objects do not correspond. An object changes unless its counterpart has exactly the same
    pixels. The objects of both maps count: one that moves, grows or shrinks counts twice, one that is lost once.
    """
    pairs, height = _pairs(labels, others)
    numbers_of, counts = np.unique(pairs, return_counts=True)
    mine, theirs = numbers_of // height, numbers_of % height
    same, inside = _correspond(mine, theirs, counts)
    kept = inside.copy()
    objects = 0
    for numbers in (mine, theirs):
        _, places, parts = np.unique(numbers, return_inverse=True, return_counts=True)
        kept &= parts[places] == 1
        objects += len(np.unique(numbers[numbers > 0]))
    return int(counts[~same].sum()), objects - 2 * int(kept.sum())


def changed_pixels(labels: Labels, others: Labels) -> NDArray[np.bool_]:
    """Which pixels (H, W) of two label maps differ, as `changes` counts them."""
    pairs, height = _pairs(labels, others)
    numbers, places, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    same, _ = _correspond(numbers // height, numbers % height, counts)
    return ~same[places].reshape(labels.shape)


def _pairs(labels: Labels, others: Labels) -> tuple[NDArray[np.int64], int]:
    """A number for the labels of both maps at each pixel, `label * height + other`; and `height`."""
    height = int(others.max(initial=0)) + 1
    return labels.astype(np.int64).ravel() * height + others.ravel(), height


def _correspond(
    mine: NDArray[np.int64], theirs: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each pair of labels, which `counts` pixels have: whether they correspond, and whether both are objects."""
    inside = (mine > 0) & (theirs > 0)
    best_of_mine, best_of_theirs = (_largest(numbers, counts, inside) for numbers in (mine, theirs))
    same = (mine == 0) & (theirs == 0)
    same |= inside & (best_of_mine == np.arange(len(counts))) & (best_of_theirs == np.arange(len(counts)))
    return same, inside


def _largest(numbers: np.ndarray, counts: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """For each pair the index of the largest one of its number among those `inside`."""
    best: dict[int, int] = {}
    for i in np.flatnonzero(inside):
        if numbers[i] not in best or counts[i] > counts[best[numbers[i]]]:
            best[numbers[i]] = int(i)
    return np.array([best.get(number, -1) for number in numbers])


class TransformedScores:
    """`InstanceScores` of the label maps of rotated and reflected images, and their changes against the upright ones."""

    def __init__(self) -> None:
        self.scores = InstanceScores()
        self.count = dict.fromkeys(("pixels", "of_pixels", "objects", "of_objects"), 0)

    def update(self, upright: Labels, back: Labels, labels: Labels) -> None:
        """Adds label maps (H, W) of one image: predicted upright, predicted from the transformed image and transformed back,
        and drawn."""
        pixels, objects = changes(upright, back)
        total = sum(len(np.unique(part[part > 0])) for part in (upright, back))
        for key, value in zip(self.count, (pixels, upright.size, objects, total), strict=True):
            self.count[key] += value
        self.scores.update(back, labels)

    def compute(self) -> dict[str, Any]:
        """`pixels` and `objects` that change, `of_pixels` and `of_objects` in all, and the scores, over all updates."""
        return {**self.count, **{name: float(value) for name, value in self.scores.compute().items()}}
