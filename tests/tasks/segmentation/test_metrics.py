"""Scores of objects against counts by hand and against StarDist's own, and what counts as a change of a label map."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation import Segmentation, SegmentationPredictor
from gcsa.tasks.segmentation.evaluate import measure_transformed
from gcsa.tasks.segmentation.metrics import IOU_THRESHOLDS, InstanceScores, OverlapScores, changes
from gcsa.tasks.segmentation.stars import Objects
from tests.tasks.segmentation.networks import TINY, picture, untrained


def blocks(*columns: tuple[int, int], shape: tuple[int, int] = (6, 40)) -> np.ndarray:
    """A label map of upright bars from column to column, numbered from 1."""
    labels = np.zeros(shape, np.int32)
    for number, (left, right) in enumerate(columns, 1):
        labels[:, left:right] = number
    return labels


def scores(*pairs: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Of (predicted, drawn) label maps."""
    metric = InstanceScores()
    for predicted, labels in pairs:
        metric.update(predicted, labels)
    return {name: value.item() for name, value in metric.compute().items()}


def test_overlap_of_objects() -> None:
    metric = OverlapScores(2)
    metric.update(blocks((0, 4), (4, 8)), blocks((2, 6), (20, 22)))  # 8 and 6 columns, 4 of them in common
    metric.update(blocks(), blocks())
    assert {name: float(value) for name, value in metric.compute().items()} == {"dice": 8 / 14, "iou": 4 / 10}


def test_overlap_of_classes() -> None:
    metric, labels = OverlapScores(4), blocks((0, 5), (10, 20))  # class 3 does not occur
    metric.update(labels, labels)
    assert set(map(float, metric.compute().values())) == {1.0}
    metric.reset()
    metric.update(np.where(labels > 0, 3 - labels, 0), labels)
    assert set(map(float, metric.compute().values())) == {0.0}, "classes that are taken for each other"
    metric.reset()
    metric.update(blocks((0, 5)), labels)
    assert set(map(float, metric.compute().values())) == {0.5}
    metric.reset()
    metric.update(blocks(), blocks())
    assert set(map(float, metric.compute().values())) == {0.0}


def test_perfect_labels() -> None:
    labels = blocks((0, 5), (10, 20))
    assert set(scores((labels, labels)).values()) == {1.0}
    other = np.where(labels == 1, 70_000, np.where(labels == 2, 5, 0)).astype(np.int32)
    assert set(scores((other, labels)).values()) == {1.0}, "whatever the numbers are"


def test_counted_by_hand() -> None:
    """Of three drawn, one is found at 8 / 10, one at 13 / 20 = 0.65, and one not; two that are found are none."""
    labels = blocks((0, 10), (12, 25), (30, 34))
    predicted = blocks((0, 8), (12, 32), (35, 37), (38, 39))
    measured = scores((predicted, labels))
    # The second covers two columns of the third: its overlap with the second is 13 / 20.
    assert measured["ap50"] == measured["ap60"] == pytest.approx(2 / (2 + 2 + 1))
    assert measured["ap70"] == pytest.approx(1 / (1 + 3 + 2))
    assert measured["ap80"] == pytest.approx(1 / 6), "from 0.8 on, so 0.8 itself counts"
    assert measured["ap90"] == 0
    assert measured["pq"] == pytest.approx((0.8 + 0.65) / (2 + 2 / 2 + 1 / 2))
    assert measured["ap50_by_image"] == measured["ap50"]


def test_objects_are_counted_over_images_and_images_alike() -> None:
    """Three of four objects of one image and none of the one of another: 3 / 6 together, the mean of 3 / 4 and 0 by image."""
    many, missing = blocks((0, 5), (6, 10), (12, 20), (22, 30)), blocks((0, 5), (6, 10), (12, 20))
    measured = scores((missing, many), (blocks((20, 30)), blocks((0, 10))))
    assert measured["ap50"] == pytest.approx(3 / 6)
    assert measured["ap50_by_image"] == pytest.approx((3 / 4 + 0) / 2)


def test_images_without_objects() -> None:
    """They say nothing where nothing is found, and what is found in them is wrong."""
    empty, labels = blocks(), blocks((0, 5))
    assert set(scores((empty, empty)).values()) == {0.0}
    assert set(scores((labels, labels), (empty, empty)).values()) == {1.0}
    measured = scores((labels, labels), (labels, empty))
    assert (measured["ap50"], measured["ap50_by_image"]) == (0.5, 0.5)
    assert scores((empty, labels))["ap50"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_as_stardist_counts(seed: int) -> None:
    from stardist.matching import matching_dataset

    rng = np.random.default_rng(seed)
    drawn, predicted = [], []
    for _ in range(4):
        edges = np.sort(rng.choice(60, 12, replace=False)).reshape(6, 2)
        shifted = np.clip(edges + rng.integers(-2, 3, edges.shape), 0, 60)[: rng.integers(2, 7)]
        drawn.append(blocks(*edges.tolist(), shape=(5, 60)))
        predicted.append(blocks(*shifted.tolist(), shape=(5, 60)))
    measured = scores(*zip(predicted, drawn, strict=True))
    for iou in IOU_THRESHOLDS:
        theirs = matching_dataset(drawn, predicted, thresh=iou, show_progress=False)
        assert measured[f"ap{round(100 * iou)}"] == pytest.approx(theirs.accuracy)
    assert measured["pq"] == pytest.approx(matching_dataset(drawn, predicted, show_progress=False).panoptic_quality)
    by_image = matching_dataset(drawn, predicted, by_image=True, show_progress=False)
    assert measured["ap50_by_image"] == pytest.approx(by_image.accuracy)


def test_large_labels_take_no_space() -> None:
    """Tables as long as the largest label would be 17 GB."""
    labels = blocks((0, 5), (10, 20))
    labels[labels == 2] = 2**31 - 1
    assert scores((labels, labels))["ap50"] == 1


def test_scores_are_reset_and_kept_in_64_bits() -> None:
    metric = InstanceScores()
    metric.update(blocks((0, 5)), blocks((10, 20)))
    metric.reset()
    metric.update(blocks((0, 5)), blocks((0, 5)))
    assert metric.compute()["ap50"] == 1
    assert metric.counts.dtype == torch.float64


def both_ways(labels: np.ndarray, others: np.ndarray) -> tuple[int, int]:
    found = changes(labels, others)
    assert found == changes(others, labels), "it has no direction"
    return found


def test_numbers_do_not_matter() -> None:
    labels = blocks((0, 5), (6, 20), (25, 31))
    other = np.select([labels == 1, labels == 2, labels == 3], [900, 1, 2**31 - 1], 0).astype(np.int32)
    assert both_ways(labels, other) == (0, 0)
    assert both_ways(blocks(), blocks()) == (0, 0)


def test_one_pixel() -> None:
    """Which an object loses, gains, or passes on to another."""
    labels = blocks((0, 5), (5, 10))
    for place, number, objects in (((2, 0), 0, 2), ((3, 12), 2, 2), ((4, 4), 2, 4), ((0, 20), 3, 1)):
        other = labels.copy()
        other[place] = number
        assert both_ways(labels, other) == (1, objects), place


def test_lost_objects() -> None:
    labels = blocks((0, 5), (10, 12), (20, 30))
    other = np.where(labels == 2, 0, labels).astype(np.int32)
    assert both_ways(labels, other) == (2 * 6, 1)
    assert both_ways(labels, blocks()) == (17 * 6, 3)


def test_merged_and_split_objects() -> None:
    """The larger part corresponds to the whole, and all three objects are others."""
    assert both_ways(blocks((0, 10), (10, 14)), blocks((0, 14))) == (4 * 6, 3)
    assert both_ways(blocks((0, 5), (5, 10), (20, 30)), blocks((0, 10), (20, 30))) == (5 * 6, 3)


def test_two_objects_that_shift_their_border() -> None:
    assert both_ways(blocks((0, 10), (10, 20)), blocks((0, 13), (13, 20))) == (3 * 6, 4)


def test_an_object_that_is_covered_by_another() -> None:
    """The small one has no counterpart, although all of its pixels are of one object."""
    assert both_ways(blocks((0, 20)), blocks((0, 17), (17, 20))) == (3 * 6, 3)


def test_objects_that_move_away() -> None:
    assert both_ways(blocks((0, 5)), blocks((10, 15))) == (10 * 6, 2)


def measured(predictor: SegmentationPredictor) -> dict[str, Any]:
    labels = blocks((0, 9), (15, 25), shape=(24, 33))
    return measure_transformed(predictor, 2 * [(picture(24, 33), labels)])


def test_nothing_changes_with_an_equivariant_network() -> None:
    instances = measured(untrained())
    assert (instances["pixels"], instances["objects"]) == (0, 0)
    assert instances["of_pixels"] == 2 * 7 * 24 * 33
    assert instances["of_objects"] > 2 * 7 * 2
    assert {"ap50", "pq", "ap50_by_image"} <= instances.keys()
    classes = measured(untrained(output="classes", num_classes=3))
    assert classes == {"pixels": 0, "of_pixels": 2 * 7 * 24 * 33}


@pytest.mark.parametrize("output", ["instances", "classes"])
@pytest.mark.parametrize("group", ["c1", "c4", "d1"])
def test_poses_beyond_the_group_change_much(group: str, output: str) -> None:
    """Negative control: c4 has no reflections, d1 no rotations, c1 neither."""
    result = measured(untrained(group=group, output=output))
    assert result["pixels"] > 0.02 * result["of_pixels"]
    if output == "instances":
        assert 0 < result["objects"] <= result["of_objects"]


class Fixed(SegmentationPredictor):
    """Predicts by a function of the image."""

    result: Callable[[np.ndarray], Segmentation]

    def predict(self, images: Any, **_: Any) -> Segmentation:
        return self.result(images)


def fixed(output: str, result: Callable[[np.ndarray], Segmentation]) -> Fixed:
    predictor = Fixed(SegmentationPredictor.create("gcsa_unet_tiny", **TINY, output=output, num_classes=3).network)
    predictor.result = result
    return predictor


def test_classes_that_change_their_names_change() -> None:
    """All of class 1 that becomes class 2 is another label map; one reflection keeps the corner where it is."""
    image = np.zeros((8, 8, 3), np.uint8)
    image[0, 0] = 1
    predictor = fixed(
        "classes", lambda x: Segmentation(ArrayImage(np.full((8, 8), 1 + (x[0, 0, 0] > 0), np.int32)), None, 3)
    )
    result = measure_transformed(predictor, [(image, np.zeros((8, 8), np.int32))])
    assert result == {"pixels": 6 * 64, "of_pixels": 7 * 64}


def test_scores_over_all_poses() -> None:
    """A network that predicts the same upright bars for every image. Transformed back, the bars are right in one of seven poses:
    two of fourteen bars. At half a rotation they overlap by chance, but by less than half."""
    bars = blocks((0, 9), (15, 25), shape=(32, 32))
    nothing = Objects(np.zeros((0, 2)), np.zeros((0, 8), np.float32), np.zeros(0))
    predictor = fixed("instances", lambda _: Segmentation(ArrayImage(bars), nothing))
    result = measure_transformed(predictor, [(picture(32, 32), bars)])
    assert result["ap50"] == pytest.approx(2 / (2 + 12 + 12))
    assert (result["objects"], result["of_objects"]) == (6 * 4, 7 * 4)
