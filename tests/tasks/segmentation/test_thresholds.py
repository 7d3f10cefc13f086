"""The chosen thresholds are the best of the grid."""

import numpy as np
import pytest
import torch

from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation.metrics import InstanceScores
from gcsa.tasks.segmentation.predict import Candidates, SegmentationPredictor
from gcsa.tasks.segmentation.stars import Labels, Objects, draw
from gcsa.tasks.segmentation.thresholds import NMS_THRESHOLDS, PROB_THRESHOLDS, choose_thresholds
from tests.tasks.segmentation.networks import TINY

SHAPE = (64, 64)
Disc = tuple[int, int, float, float]
"""Row, column, radius and probability."""


def discs(*parts: Disc) -> Objects:
    values = np.array(parts)
    return Objects(values[:, :2], np.repeat(values[:, 2:3], 32, 1).astype(np.float32), values[:, 3])


class Finds(SegmentationPredictor):
    """Finds the same objects in every image."""

    objects: Objects

    def predict_candidates(self, image: object, *, prob_thresh: float | None = None, **_: object) -> Candidates:
        kept = self.objects.scores > (self.prob_thresh if prob_thresh is None else prob_thresh)
        return Candidates(0, SHAPE, self.objects[kept], None)


def finds(*parts: Disc) -> Finds:
    predictor = Finds(SegmentationPredictor.create("gcsa_unet_tiny", **TINY).network)
    predictor.objects = discs(*parts)
    return predictor


def example(*parts: Disc) -> tuple[ArrayImage, Labels]:
    return ArrayImage(np.zeros((*SHAPE, 3), np.uint8)), draw(discs(*parts), SHAPE)


@pytest.mark.parametrize(
    ("scores", "real", "prob_thresh"), [((0.65, 0.45, 0.35), 2, 0.4), ((0.65, 0.35, 0.25), 3, 0.2)]
)
def test_a_threshold_between_right_and_wrong(scores: tuple[float, ...], real: int, prob_thresh: float) -> None:
    parts = [(*place, 8, score) for place, score in zip(((12, 12), (12, 44), (44, 12)), scores, strict=True)]
    predictor = finds(*parts)
    assert choose_thresholds(predictor, 2 * [example(*parts[:real])]) == 1
    assert predictor.prob_thresh == predictor.options["prob_thresh"] == prob_thresh
    assert predictor.predict(example(*parts)[0]).labels.max() == real


@pytest.mark.parametrize(("apart", "real"), [(12, 2), (4, 1)])
def test_an_overlap_between_neighbours_and_duplicates(apart: int, real: int) -> None:
    """Two discs of 10 pixels: neighbours that share a part, or one object that is found twice."""
    parts = [(30, 20, 10, 0.69), (30, 20 + apart, 10, 0.68)]
    predictor = finds(*parts)
    assert choose_thresholds(predictor, [example(*parts[:real])]) > 0.9
    assert predictor.predict(example(*parts)[0]).labels.max() == real
    assert predictor.options["nms_thresh"] == predictor.nms_thresh in NMS_THRESHOLDS


def test_it_is_the_best_of_all_pairs() -> None:
    """Against a search with one prediction for each pair, on random discs."""
    rng = np.random.default_rng(0)
    parts = [(*rng.integers(6, 58, 2).tolist(), *rng.uniform([4, 0.1], [11, 0.9]).tolist()) for _ in range(16)]
    predictor, (image, labels) = finds(*parts), example(*parts[::2])
    score = choose_thresholds(predictor, [(image, labels)])
    chosen, scores = (predictor.prob_thresh, predictor.nms_thresh), {}
    for pair in [(p, n) for p in PROB_THRESHOLDS for n in NMS_THRESHOLDS]:
        predictor.prob_thresh, predictor.nms_thresh = pair
        metric = InstanceScores()
        metric.update(predictor.predict(image).labels, labels)
        scores[pair] = float(torch.stack([metric.compute()[f"ap{k}"] for k in (50, 60, 70, 80, 90)]).mean())
    assert score == pytest.approx(max(scores.values())) == scores[chosen]
    assert len({round(value, 6) for value in scores.values()}) > 3


def test_of_tied_pairs_the_nearest() -> None:
    predictor = finds((30, 30, 8, 0.69))
    assert choose_thresholds(predictor, [example((30, 30, 8, 1))]) == 1
    assert (predictor.prob_thresh, predictor.nms_thresh) == (0.5, 0.4)
