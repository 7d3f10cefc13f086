"""One image, rotated by one angle: what a segmenter or a classifier answers, and what of it changes.

The measures are those of gcsa audit (`gcsa.tasks.segmentation.audit`, `gcsa.evaluation.poses`): in the poses that map the pixel grid onto
itself every change is the network's own, and between them the discs of the square in the middle are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gcsa._utils.arrays import Array
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.evaluation.poses import Turn, disc, turned
from gcsa.tasks.base import Predictor
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.segmentation.audit import in_disc, middle, seen_back, turned_picture, unmatched
from gcsa.tasks.segmentation.metrics import changed_pixels, changes
from gcsa.tasks.segmentation.predict import SegmentationPredictor
from gcsa.tasks.segmentation.stars import Labels


@dataclass(frozen=True)
class Comparison:
    """What changes with one rotation of an image.

    Attributes:
        sentence: says it.
        seen: the rotated picture that the network saw, (h, w, C).
        upright, changed: of a segmenter, the label map (H, W) of the image as it is, and which of its pixels change.
    """

    sentence: str
    seen: Array
    upright: Labels | None = None
    changed: NDArray[np.bool_] | None = None


def compare(predictor: Predictor, picture: Array, turn: Turn) -> Comparison:
    """What changes where a picture (H, W) or (H, W, C) rotates. Raises UserError as `predict`."""
    picture = picture[..., None] if picture.ndim == 2 else picture[..., :3]
    if isinstance(predictor, SegmentationPredictor):
        return _of_labels(predictor, picture, turn)
    assert isinstance(predictor, ClassificationPredictor)
    return _of_scores(predictor, picture, turn)


def _of_labels(predictor: SegmentationPredictor, picture: Array, turn: Turn) -> Comparison:
    square = middle(picture)
    part = picture if turn.is_exact else square
    result = predictor.predict(picture if turn.is_exact else in_disc(square))
    upright, found = result.labels, seen_back(predictor, part, turn)
    if result.objects is None:  # classes, whose numbers have a meaning
        changed, tail = upright != found, "pixels change their class"
    else:
        changed = changed_pixels(upright, found)
        objects = changes(upright, found)[1] if turn.is_exact else unmatched(upright, found)
        total = sum(len(np.unique(labels[labels > 0])) for labels in (upright, found))
        tail = f"pixels and {objects:,} of {total:,} objects of both change"
    sentence = f"{turn}: {np.count_nonzero(changed):,} of {upright.size:,} {tail}"
    return Comparison(sentence, turned_picture(part, turn), _whole(upright, picture), _whole(changed, picture))


def _whole(square: Array, picture: Array) -> Array:
    """A map of the picture, or of the square in its middle, as one of the whole picture."""
    if square.shape == picture.shape[:2]:
        return square
    whole = np.zeros(picture.shape[:2], square.dtype)
    middle(whole)[:] = square
    return whole


def _of_scores(predictor: ClassificationPredictor, picture: Array, turn: Turn) -> Comparison:
    pixels = picture[..., 0] if picture.shape[2] == 1 else picture
    image = predictor.preprocess(pixels)[None]
    both = torch.cat([image if turn.is_exact else disc(image), turned(image, turn)])
    with evaluation_mode(predictor.network) as where:
        answers = predictor.target.answers(predictor.network(both.to(where)).float().cpu())
    lines = [
        f"{name}: {before:.4f}, rotated {after:.4f}"
        for name, before, after in zip(predictor.class_names, *answers.tolist(), strict=True)
    ]
    change = float((answers[1] - answers[0]).abs().max())
    seen = turned_picture(picture if turn.is_exact else middle(picture), turn)
    return Comparison("\n".join([f"{turn}: the largest change is {change:.2g}", *lines]), seen)
