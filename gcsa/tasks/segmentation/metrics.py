"""How right label maps are, and how much of one changes when its image is turned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import multiclass_confusion_matrix

from gcsa.groups import group
from gcsa.tasks.segmentation.losses import classes
from gcsa.tasks.segmentation.segmenter import Segmenter
from gcsa.tasks.segmentation.stars import Labels, numbered

OVERLAPS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Intersection over union from which a predicted object is one of those that were drawn."""


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
        """Label maps (H, W) of one image: what was found, and what was drawn."""
        found, drawn = (classes(part, self.num_classes).to(self.device) for part in (predicted, labels))
        self.counts += multiclass_confusion_matrix(found, drawn, self.num_classes)

    def compute(self) -> dict[str, Tensor]:
        """dice, iou."""
        both = self.counts.double().diagonal()[1:]
        either = (self.counts.sum(0) + self.counts.sum(1))[1:]
        occurring = max(1, int((either > 0).sum()))
        dice, iou = 2 * both / either.clamp_min(1), both / (either - both).clamp_min(1)
        return {"dice": dice.sum() / occurring, "iou": iou.sum() / occurring}


class InstanceScores(Metric):
    """Average precision TP / (TP + FP + FN) of the objects of all images at each of `OVERLAPS`, panoptic quality (Kirillov
    et al. 2019, arXiv:1801.00868) at 0.5, and the mean over images of the average precision at 0.5; counted by
    `stardist.matching`."""

    full_state_update = False
    counts: Tensor
    matched: Tensor
    by_image: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(len(OVERLAPS), 3, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("matched", torch.zeros(1, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("by_image", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Labels, labels: Labels) -> None:
        """Label maps (H, W) of one image: what was found, and what was drawn."""
        from stardist.matching import matching

        results = matching(numbered(labels), numbered(predicted), thresh=OVERLAPS)
        counts = torch.tensor([[r.tp, r.fp, r.fn] for r in results], dtype=torch.float64)
        self.counts += counts.to(self.counts)
        self.matched += results[0].mean_matched_score * results[0].tp
        if counts[0].sum():  # an image without objects, in which none are found, says nothing
            self.by_image += torch.tensor([counts[0, 0] / counts[0].sum(), 1.0]).to(self.by_image)

    def compute(self) -> dict[str, Tensor]:
        """ap50, ap60, ... ap90, pq, ap50_by_image."""
        tp, fp, fn = self.counts.unbind(1)
        precision = tp / (tp + fp + fn).clamp_min(1)
        scores = {f"ap{round(100 * overlap)}": value for overlap, value in zip(OVERLAPS, precision, strict=True)}
        quality = self.matched[0] / (tp + (fp + fn) / 2)[0].clamp_min(0.5)
        return {**scores, "pq": quality, "ap50_by_image": self.by_image[0] / self.by_image[1].clamp_min(1)}


def build_metrics(segmenter: Segmenter) -> dict[str, Metric]:
    """New metrics of the label maps of a segmenter; each takes label maps (predicted, drawn) and computes scores by name."""
    if segmenter.task == "instances":
        return {"overlap": OverlapScores(2), "instances": InstanceScores()}
    return {"overlap": OverlapScores(segmenter.options["num_classes"])}


def changes(labels: Labels, others: Labels) -> tuple[int, int]:
    """How many pixels and how many objects of two label maps (H, W) of one image differ, whatever their numbers are.

    Two objects correspond where each is the one that the other shares most pixels with; the background corresponds to the
    background. A pixel changes where its objects do not correspond. An object changes unless it has a counterpart of exactly its
    pixels, and the objects of both maps are counted: one that moves, grows or shrinks is two, and one that is lost is one.
    """
    height = int(others.max(initial=0)) + 1
    pairs, counts = np.unique(labels.astype(np.int64).ravel() * height + others.ravel(), return_counts=True)
    mine, theirs = pairs // height, pairs % height
    inside = (mine > 0) & (theirs > 0)
    best_of_mine, best_of_theirs = (_largest(numbers, counts, inside) for numbers in (mine, theirs))
    same = (mine == 0) & (theirs == 0)
    same |= inside & (best_of_mine == np.arange(len(pairs))) & (best_of_theirs == np.arange(len(pairs)))
    kept = inside.copy()
    objects = 0
    for numbers in (mine, theirs):
        _, places, parts = np.unique(numbers, return_inverse=True, return_counts=True)
        kept &= parts[places] == 1
        objects += len(np.unique(numbers[numbers > 0]))
    return int(counts[~same].sum()), objects - 2 * int(kept.sum())


def _largest(numbers: np.ndarray, counts: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """For each pair the index of the largest one of its number among those `inside`."""
    best: dict[int, int] = {}
    for i in np.flatnonzero(inside):
        if numbers[i] not in best or counts[i] > counts[best[numbers[i]]]:
            best[numbers[i]] = int(i)
    return np.array([best.get(number, -1) for number in numbers])


class TurnedScores:
    """What the label maps of turned images, turned back to upright, have of `InstanceScores`, and what of them changes."""

    def __init__(self) -> None:
        self.scores = InstanceScores()
        self.count = dict.fromkeys(("pixels", "of_pixels", "objects", "of_objects"), 0)

    def update(self, upright: Labels, back: Labels, labels: Labels) -> None:
        """Label maps (H, W) of one image: found upright, found turned, and drawn."""
        pixels, objects = changes(upright, back)
        there = sum(len(np.unique(found[found > 0])) for found in (upright, back))
        for key, value in zip(self.count, (pixels, upright.size, objects, there), strict=True):
            self.count[key] += value
        self.scores.update(back, labels)

    def compute(self) -> dict[str, Any]:
        """`pixels` and `objects` that change, `of_pixels` and `of_objects` that there are, and the scores, over all updates."""
        return {**self.count, **{name: float(value) for name, value in self.scores.compute().items()}}


@torch.inference_mode()
def measure_turned(segmenter: Segmenter, examples: Iterable[tuple[Tensor, Labels]]) -> dict[str, Any]:
    """What a segmenter finds in each image turned and mirrored, all seven ways but the upright one, against what it finds in the
    upright image, and against what was drawn; networks without a group are measured in the same way.

    examples: normalised images (in_chans, H, W) with their label maps (H, W). Returns of instances what `TurnedScores` does, of
    classes, whose numbers are names, `pixels` that change and `of_pixels` that there are.
    """
    poses, instances = group("d4"), TurnedScores()
    pixels = {"pixels": 0, "of_pixels": 0}
    for image, labels in examples:
        upright = segmenter.labels(segmenter.maps(image))
        for g in poses.exact_elements[1:]:
            turned = segmenter.labels(segmenter.maps(poses.act_on_grid(image, g)))
            back = poses.act_on_grid(torch.from_numpy(turned.copy()), int(poses.inverse[g])).numpy()
            if segmenter.task == "instances":
                instances.update(upright, back, labels)
            else:
                pixels["pixels"] += int((upright != back).sum())
                pixels["of_pixels"] += upright.size
    return instances.compute() if segmenter.task == "instances" else pixels
