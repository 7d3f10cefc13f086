"""Targets of label maps, and losses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.tasks.segmentation.stars import Labels, check_numbers, star_targets

log = logging.getLogger(__name__)

RAY_WEIGHT = 0.2
"""Weight of the mean error of the rays in pixels, beside the cross-entropy of the object map (Schmidt et al. 2018)."""


def classes(labels: Labels, num_classes: int) -> Tensor:
    """The class of each pixel, int64 (H, W). With two classes, all objects are class 1; with more, labels are the classes.

    Raises UserError for a label that is no class.
    """
    if num_classes == 2:
        return torch.from_numpy((labels > 0).astype(np.int64))
    if labels.max(initial=0) >= num_classes:
        raise UserError(
            f"a mask holds the label {labels.max()}, but model.num_classes={num_classes}: labels are classes from 0 to "
            f"{num_classes - 1}, or objects of one class where there are two",
            "mask.label",
        )
    return torch.from_numpy(labels.astype(np.int64))


def class_targets(labels: Labels, num_classes: int) -> Tensor:
    """`classes` as the target of a network: (1, H, W), float32. Raises as `classes`."""
    return classes(labels, num_classes)[None].float()


def make_targets(output: str, num_classes: int, rays: int) -> Callable[[Labels], Tensor]:
    """The function from a label map (H, W) to the target of a network: `star_targets` or `class_targets`. It can be pickled."""
    if output == "instances":
        return partial(star_targets, rays=rays)
    return partial(class_targets, num_classes=num_classes)


def label_validator(output: str, num_classes: int) -> Callable[[Labels], object]:
    """The function that raises UserError for a label map (H, W) that does not fit the output of a network: `check_numbers` or
    `classes`. It can be pickled."""
    if output == "instances":
        return _check_one
    return partial(classes, num_classes=num_classes)


def _check_one(labels: Labels) -> None:
    check_numbers([labels])


def labels_are_classes(output: str, num_classes: int) -> bool:
    """Whether labels say which class a pixel has, not which object it is of."""
    return output == "classes" and num_classes != 2


def split_validator(output: str, num_classes: int) -> Callable[[Sequence[Labels]], object] | None:
    """The function that sees the label maps of all training images, where there is something to check: `check_numbers`, or one that logs
    which classes have no pixel."""
    if output == "instances":
        return check_numbers
    return partial(_tell_absent, num_classes=num_classes) if labels_are_classes(output, num_classes) else None


def _tell_absent(labels: Sequence[Labels], num_classes: int) -> None:
    found = np.zeros(num_classes, bool)
    for one in labels:
        found[np.unique(one)] = True
    if absent := [str(number) for number in range(1, num_classes) if not found[number]]:
        log.warning("no training mask has a pixel of class %s: it will not be found", ", ".join(absent))


def star_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the object map, and the mean error of the rays, weighted by it, both (B, 1 + R, H, W) in pixels."""
    depth = targets[:, :1]
    rays = (depth * (outputs[:, 1:] - targets[:, 1:]).abs()).mean(1).sum() / depth.sum().clamp_min(1)
    return F.binary_cross_entropy_with_logits(outputs[:, :1], depth) + RAY_WEIGHT * rays


def class_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy plus one minus the mean Dice score of all classes but the background, from logits (B, classes, H, W) and
    classes (B, 1, H, W)."""
    drawn = targets[:, 0].long()
    one_hot = F.one_hot(drawn, outputs.shape[1]).movedim(-1, 1)[:, 1:].to(outputs)
    predicted = outputs.softmax(1)[:, 1:]
    over = (0, 2, 3)
    dice = (2 * (predicted * one_hot).sum(over) + 1) / (predicted.sum(over) + one_hot.sum(over) + 1)
    return F.cross_entropy(outputs, drawn) + 1 - dice.mean()
