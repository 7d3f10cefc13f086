"""What segmenters are trained on: targets of label maps, and losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.tasks.segmentation.segmenter import Segmenter
from gcsa.tasks.segmentation.stars import Labels, check_objects, star_targets

RAY_WEIGHT = 0.2
"""Of the mean error of the rays, in pixels, beside the cross-entropy of the object map (Schmidt et al. 2018)."""


def classes(labels: Labels, num_classes: int) -> Tensor:
    """The class of each pixel, int64 (H, W): objects of any number are class 1 of two; of more, labels are the classes.

    Raises ValueError for a label that is no class.
    """
    if num_classes == 2:
        return torch.from_numpy((labels > 0).astype(np.int64))
    if labels.max(initial=0) >= num_classes:
        raise UserError(
            f"a mask holds the label {labels.max()}, but model.num_classes={num_classes}: labels are classes from 0 to "
            f"{num_classes - 1}, or objects of one class where there are two"
        )
    return torch.from_numpy(labels.astype(np.int64))


def mask_targets(labels: Labels, num_classes: int) -> Tensor:
    """`classes` as a network's target: (1, H, W), float32. Raises as `classes`."""
    return classes(labels, num_classes)[None].float()


def targets_of(segmenter: Segmenter) -> Callable[[Labels], Tensor]:
    """What turns a label map (H, W) into what `segmenter` learns from: `star_targets` or `mask_targets`; it can be pickled,
    for processes that a run starts."""
    if segmenter.task == "instances":
        return partial(star_targets, rays=segmenter.rays)
    return partial(mask_targets, num_classes=segmenter.options["num_classes"])


def checked_as(segmenter: Segmenter) -> Callable[[Labels], object]:
    """What raises ValueError for a label map (H, W) that `segmenter` cannot learn from, and that it cannot be compared with:
    `check_objects` or `classes`; it can be pickled."""
    if segmenter.task == "instances":
        return check_objects
    return partial(classes, num_classes=segmenter.options["num_classes"])


def star_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the object map, and the mean error of the rays, weighted by it, both (B, 1 + R, H, W) in pixels."""
    depth = targets[:, :1]
    rays = (depth * (outputs[:, 1:] - targets[:, 1:]).abs()).mean(1).sum() / depth.sum().clamp_min(1)
    return F.binary_cross_entropy_with_logits(outputs[:, :1], depth) + RAY_WEIGHT * rays


def mask_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of classes and one minus the mean Dice score of the classes but the first, from logits (B, classes, H,
    W) and classes (B, 1, H, W)."""
    wanted = targets[:, 0].long()
    one_hot = F.one_hot(wanted, outputs.shape[1]).movedim(-1, 1)[:, 1:].to(outputs)
    found = outputs.softmax(1)[:, 1:]
    over = (0, 2, 3)
    dice = (2 * (found * one_hot).sum(over) + 1) / (found.sum(over) + one_hot.sum(over) + 1)
    return F.cross_entropy(outputs, wanted) + 1 - dice.mean()
