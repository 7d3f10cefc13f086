"""The choice of `prob_thresh` and `nms_thresh` on validation images."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from gcsa.images.windows import WindowedImage
from gcsa.tasks.segmentation.metrics import IOU_THRESHOLDS, InstanceScores
from gcsa.tasks.segmentation.predict import SegmentationPredictor
from gcsa.tasks.segmentation.stars import Labels

PROB_THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
NMS_THRESHOLDS = (0.2, 0.3, 0.4, 0.5)


def choose_thresholds(predictor: SegmentationPredictor, examples: Iterable[tuple[WindowedImage, Labels]]) -> float:
    """Sets both thresholds of a predictor of instances to the pair with the highest mean average precision over
    `IOU_THRESHOLDS`, and returns this mean. Of tied pairs it takes the one nearest to those before.

    The network runs once for each image. examples: images with their label maps (H, W).
    """
    scores = {pair: InstanceScores() for pair in product(PROB_THRESHOLDS, NMS_THRESHOLDS)}
    for image, labels in examples:
        candidates = predictor.predict_candidates(image, prob_thresh=min(PROB_THRESHOLDS))
        for (prob_thresh, nms_thresh), score in scores.items():
            score.update(predictor.finish(candidates, prob_thresh=prob_thresh, nms_thresh=nms_thresh).labels, labels)
    before = predictor.prob_thresh, predictor.nms_thresh

    def rank(pair: tuple[float, float]) -> tuple[float, float]:
        values = scores[pair].compute()
        mean = sum(float(values[f"ap{round(100 * iou)}"]) for iou in IOU_THRESHOLDS) / len(IOU_THRESHOLDS)
        return mean, -sum(abs(a - b) for a, b in zip(pair, before, strict=True))

    best = max(scores, key=rank)
    predictor.prob_thresh, predictor.nms_thresh = best
    return rank(best)[0]
