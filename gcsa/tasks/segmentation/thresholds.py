"""The threshold and the overlap that find the most objects in validation images."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gcsa.tasks.segmentation.metrics import OVERLAPS, InstanceScores
from gcsa.tasks.segmentation.segmenter import Segmenter
from gcsa.tasks.segmentation.stars import Labels, candidates, draw, suppress

THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
SHARES = (0.2, 0.3, 0.4, 0.5)


@torch.inference_mode()
def choose_thresholds(segmenter: Segmenter, images: Iterable[tuple[Tensor, Labels]]) -> float:
    """Sets `threshold` and `overlap` of a segmenter of instances to those of the highest mean of the average precisions at
    `OVERLAPS`, which is returned; of settings that are level, to the nearest. images: normalised ones (in_chans, H, W) with their label maps (H, W)."""
    scores = {(threshold, share): InstanceScores() for threshold in THRESHOLDS for share in SHARES}
    for image, labels in images:
        shape = (image.shape[1], image.shape[2])
        found = candidates(segmenter.maps(image), min(THRESHOLDS))
        for (threshold, share), score in scores.items():
            objects = suppress(found[found.scores > threshold], share, shape)
            score.update(draw(objects, shape), labels)
    means = {
        setting: sum(float(value) for name, value in score.compute().items() if name in _names()) / len(OVERLAPS)
        for setting, score in scores.items()
    }
    usual = segmenter.threshold, segmenter.overlap
    best = max(
        means, key=lambda setting: (means[setting], -sum(abs(a - b) for a, b in zip(setting, usual, strict=True)))
    )
    segmenter.set_thresholds(*best)
    return means[best]


def _names() -> list[str]:
    return [f"ap{round(100 * overlap)}" for overlap in OVERLAPS]
