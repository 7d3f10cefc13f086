"""The threshold and the overlap that are chosen are the best of the grid."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.metrics import InstanceScores
from gcsa.tasks.segmentation.stars import Objects, draw
from gcsa.tasks.segmentation.thresholds import SHARES, THRESHOLDS, choose_thresholds

TINY: dict[str, Any] = dict(fields=[2], depths=[1], heads=[1], radii=[1], stem_fields=[2], rays=32)
SIDE = 64


class Finds(Segmenter):
    """A network that says the same of every image: discs of given centres, radii and probabilities."""

    def __init__(self, discs: list[tuple[int, int, float, float]]) -> None:
        super().__init__(**TINY)
        self.discs = discs

    def maps(self, image: Tensor) -> Tensor:
        maps = torch.full((33, *image.shape[1:]), -9.0, dtype=torch.float64)
        for row, column, radius, probability in self.discs:
            maps[0, row, column] = torch.logit(torch.tensor(probability, dtype=torch.float64))
            maps[1:, row, column] = radius
        return maps


def drawn(discs: list[tuple[int, int, float]]) -> tuple[Tensor, np.ndarray]:
    """An image, and a label map of discs."""
    points = np.array([[row, column] for row, column, _ in discs], float)
    distances = np.array([32 * [radius] for *_, radius in discs], np.float32)
    return torch.zeros(3, SIDE, SIDE), draw(Objects(points, distances, np.ones(len(discs))), (SIDE, SIDE))


def test_a_threshold_between_what_is_right_and_what_is_wrong() -> None:
    """Objects of 0.65 and 0.45 are there, one of 0.35 is not, and one of 0.25 is."""
    segmenter = Finds([(12, 12, 8, 0.65), (12, 44, 8, 0.45), (44, 12, 8, 0.35)])
    score = choose_thresholds(segmenter, 2 * [drawn([(12, 12, 8), (12, 44, 8)])])
    assert score == 1
    assert segmenter.threshold == 0.4
    assert segmenter.options["threshold"] == 0.4
    assert segmenter.labels(segmenter.maps(torch.zeros(3, SIDE, SIDE))).max() == 2


def test_a_lower_threshold_where_more_is_there() -> None:
    segmenter = Finds([(12, 12, 8, 0.65), (12, 44, 8, 0.25), (44, 12, 8, 0.35)])
    assert choose_thresholds(segmenter, [drawn([(12, 12, 8), (12, 44, 8), (44, 12, 8)])]) == 1
    assert segmenter.threshold == 0.2


@pytest.mark.parametrize(("apart", "both"), [(12, True), (4, False)])
def test_an_overlap_that_tells_neighbours_from_doubles(apart: int, both: bool) -> None:
    """Two discs of 10 pixels: neighbours that share a part, or the same object found twice."""
    discs = [(30, 20, 10, 0.69), (30, 20 + apart, 10, 0.68)]
    segmenter = Finds(discs)
    score = choose_thresholds(segmenter, [drawn([disc[:3] for disc in discs][: 2 if both else 1])])
    assert score > 0.9
    found = segmenter.labels(segmenter.maps(torch.zeros(3, SIDE, SIDE)))
    assert found.max() == (2 if both else 1)
    assert segmenter.options["overlap"] == segmenter.overlap in SHARES


def test_it_is_the_best_of_all_settings() -> None:
    """Against a search that sets each in turn and reads the maps as anybody does, on discs at random."""
    rng = np.random.default_rng(0)
    discs = [
        (*rng.integers(6, 58, 2).tolist(), float(r), float(p)) for r, p in rng.uniform([4, 0.1], [11, 0.9], (16, 2))
    ]
    segmenter, example = Finds(discs), drawn([disc[:3] for disc in discs[::2]])
    score = choose_thresholds(segmenter, [example])
    chosen, scores = (segmenter.threshold, segmenter.overlap), {}
    for threshold in THRESHOLDS:
        for overlap in SHARES:
            segmenter.set_thresholds(threshold, overlap)
            metric = InstanceScores()
            metric.update(segmenter.labels(segmenter.maps(example[0])), example[1])
            precisions = [
                float(value)
                for name, value in metric.compute().items()
                if name in ("ap50", "ap60", "ap70", "ap80", "ap90")
            ]
            scores[threshold, overlap] = sum(precisions) / 5
    assert score == pytest.approx(max(scores.values()))
    assert scores[chosen] == pytest.approx(score)
    assert len({round(value, 6) for value in scores.values()}) > 3


def test_of_settings_that_are_level_the_nearest() -> None:
    segmenter = Finds([(30, 30, 8, 0.69)])
    before = segmenter.threshold, segmenter.overlap
    assert choose_thresholds(segmenter, [drawn([(30, 30, 8)])]) == 1
    assert (segmenter.threshold, segmenter.overlap) == before == (0.5, 0.4)
