"""Scores of objects against counts by hand and against StarDist's own, and what counts as a change of a label map."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.metrics import OVERLAPS, InstanceScores, OverlapScores, changes, measure_turned
from gcsa.testing import randomize

TINY: dict[str, Any] = dict(fields=[2, 4], depths=[1, 1], heads=[1, 2], radii=[1, 1], stem_fields=[2], rays=8)


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
    for overlap in OVERLAPS:
        theirs = matching_dataset(drawn, predicted, thresh=overlap, show_progress=False)
        assert measured[f"ap{round(100 * overlap)}"] == pytest.approx(theirs.accuracy)
    assert measured["pq"] == pytest.approx(matching_dataset(drawn, predicted, show_progress=False).panoptic_quality)
    by_image = matching_dataset(drawn, predicted, by_image=True, show_progress=False)
    assert measured["ap50_by_image"] == pytest.approx(by_image.accuracy)


def test_large_labels_take_no_room() -> None:
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


def examples(count: int, size: tuple[int, int]) -> list[tuple[Tensor, np.ndarray]]:
    return [(torch.randn(3, *size, dtype=torch.float64), blocks((0, 9), (15, 25), shape=size)) for _ in range(count)]


def measured(segmenter: Segmenter, size: tuple[int, int] = (24, 33)) -> dict[str, Any]:
    segmenter = segmenter.double().eval()
    return measure_turned(segmenter, examples(2, size))


def centred(**options: Any) -> Segmenter:
    """A small network whose first output lies about the others', so that it finds objects and pixels of every class."""
    made = randomize(Segmenter(**{**TINY, "layer_scale": 1.0, "threshold": 0.45, **options})).double().eval()
    out: Any = made.network.head.out
    with torch.no_grad():
        logits = made(torch.randn(1, 3, 48, 48, dtype=torch.float64))[:, : made.network.head.count]
        out.bias[: made.network.head.count] -= logits.mean((0, 2, 3))
    return made


def test_nothing_changes_with_an_equivariant_network() -> None:
    found = measured(centred())
    assert (found["pixels"], found["objects"]) == (0, 0)
    assert found["of_pixels"] == 2 * 7 * 24 * 33
    assert found["of_objects"] > 2 * 7 * 2
    assert {"ap50", "pq", "ap50_by_image"} <= found.keys()
    masks = measured(centred(task="masks", num_classes=3))
    assert masks == {"pixels": 0, "of_pixels": 2 * 7 * 24 * 33}


@pytest.mark.parametrize("task", ["instances", "masks"])
@pytest.mark.parametrize("group", ["c1", "c4", "d1"])
def test_poses_beyond_the_group_change_much(group: str, task: str) -> None:
    """The control: c4 misses the mirrors, d1 the turns, c1 all."""
    found = measured(centred(group=group, task=task))
    assert found["pixels"] > 0.02 * found["of_pixels"]
    if task == "instances":
        assert 0 < found["objects"] <= found["of_objects"]


def test_a_plain_network_changes_much() -> None:
    network = Segmenter("smp_unet_resnet18", task="masks").double().eval()
    out = network.network.unet.segmentation_head[0]
    with torch.no_grad():
        out.bias -= network(torch.randn(1, 3, 64, 64, dtype=torch.float64)).mean((0, 2, 3))
    found = measure_turned(network, examples(1, (32, 32)))
    assert found["pixels"] > 0.01 * found["of_pixels"]


def test_classes_that_change_their_names_change() -> None:
    """Of masks the numbers matter: all of class 1 that becomes class 2 is another mask."""

    class Named(Segmenter):
        def maps(self, image: Tensor) -> Tensor:
            maps = torch.zeros(3, *image.shape[1:])
            maps[2 if image[0, 0, 0] > 0 else 1] = 1
            return maps

    network = Named("gcsa_unet_tiny", task="masks", num_classes=3, **TINY)
    image = torch.zeros(3, 8, 8)
    image[:, 0, 0] = 1
    found = measure_turned(network, [(image, np.zeros((8, 8), np.int32))])
    assert found == {"pixels": 6 * 64, "of_pixels": 7 * 64}, "one mirror alone keeps the corner where it is"


def test_scores_over_all_ways() -> None:
    """A network that finds the same upright bars in whatever it is shown: turned back they are right upside down alone, one of
    the seven ways, which is two of fourteen bars, and at half turns they overlap by chance, but not by half."""
    bars = blocks((0, 9), (15, 25), shape=(32, 32))

    class Fixed(Segmenter):
        def labels(self, maps: Tensor) -> np.ndarray:
            return bars

    found = measure_turned(Fixed(**TINY), [(torch.zeros(3, 32, 32), bars)])
    assert found["ap50"] == pytest.approx(2 / (2 + 12 + 12))
    assert found["objects"] == 6 * 4
    assert found["of_objects"] == 7 * 4
