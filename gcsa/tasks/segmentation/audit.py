"""The audit of a segmenter: how its label maps change when images rotate and reflect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode, functional

from gcsa._utils.arrays import Array
from gcsa.actions import transform_array
from gcsa.evaluation.poses import Change, Turn, disc, turned, turns
from gcsa.groups import group
from gcsa.tasks.segmentation.metrics import changes
from gcsa.tasks.segmentation.stars import numbered

EMPTY = "no label map holds anything but background, so it says little that they stay"


def audit(
    predictor: Any, pictures: Iterable[Array], steps: int, advance: Callable[[int], object] = lambda count: None
) -> tuple[list[Change], bool]:
    """The changes of the label maps of pictures (H, W, C) at each of `turns(steps)` but the identity, over all pictures together;
    and whether all of the upright ones hold nothing but background.

    Between the exact poses it compares the discs of the largest square in the middle, and an object changes that has no
    counterpart at an intersection over union of 0.5: resampling changes a pixel of each. `advance` is called with the number of images
    that were segmented.
    """
    others = turns(steps)[1:]
    counts, is_empty = {turn: np.zeros(4, np.int64) for turn in others}, True
    for picture in pictures:
        square = middle(picture)
        upright, inner = predictor.predict(picture), predictor.predict(in_disc(square)).labels
        is_empty = is_empty and not upright.labels.any()
        advance(2)
        for turn in others:
            reference = upright.labels if turn.is_exact else inner
            found = seen_back(predictor, picture if turn.is_exact else square, turn)
            if upright.objects is None:  # classes, whose numbers have a meaning
                differ = int((found != reference).sum())
                counts[turn] += (differ, reference.size, 0, 0)
            else:
                pixels, objects = changes(reference, found)
                total = sum(len(np.unique(part[part > 0])) for part in (reference, found))
                objects = objects if turn.is_exact else unmatched(reference, found)
                counts[turn] += (pixels, reference.size, objects, total)
            advance(1)
    measured = [
        Change(turn, pixels / of, pixels=pixels / of, objects=objects / all_objects if all_objects else None)
        for turn, (pixels, of, objects, all_objects) in counts.items()
        if of
    ]
    return measured, is_empty


def unmatched(labels: Array, others: Array) -> int:
    """The number of objects of two label maps (H, W) that have no counterpart at an intersection over union of 0.5."""
    from stardist.matching import matching

    found = matching(numbered(labels), numbered(others), thresh=0.5)
    return int(found.fp + found.fn)


def middle(picture: Array) -> Array:
    """The largest square in the middle of a picture (H, W, C)."""
    height, width = picture.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return picture[top : top + side, left : left + side]


def in_disc(square: Array) -> Array:
    """A square (S, S, C), 0 outside of the inscribed disc."""
    return np.asarray(square * (disc(torch.ones(1, 1, *square.shape[:2]))[0, 0].numpy() > 0)[..., None], square.dtype)


def turned_picture(picture: Array, turn: Turn) -> Array:
    """The picture (H, W, C) turned, in its dtype; between the exact turns a square, in the inscribed disc."""
    if turn.is_exact:
        return np.ascontiguousarray(transform_array(picture, group("d4"), turn.element))
    planes = torch.from_numpy(picture.astype(np.float64)).permute(2, 0, 1)[None]
    rotated = turned(planes, turn)[0].permute(1, 2, 0).numpy()
    return (rotated.round() if picture.dtype.kind in "iu" else rotated).astype(picture.dtype)


def seen_back(predictor: Any, picture: Array, turn: Turn) -> Array:
    """The label map of the turned picture, turned back."""
    labels = predictor.predict(turned_picture(picture, turn)).labels
    if turn.is_exact:
        return transform_array(labels, group("d4"), int(group("d4").inverse[turn.element]))
    back = functional.rotate(torch.from_numpy(labels)[None].double(), -turn.degrees, InterpolationMode.NEAREST)[0]
    return back.numpy().astype(labels.dtype)
