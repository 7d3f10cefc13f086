"""The comparison of an image with itself, rotated: exact networks change nothing in exact poses, others do."""

from typing import Any

import numpy as np
import pytest
import torch

from gcsa.evaluation.poses import Turn
from gcsa.images.prepare import Prepare
from gcsa.integrations.napari.turning import compare
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.segmentation import SegmentationPredictor
from gcsa.tasks.segmentation.metrics import changed_pixels, changes
from gcsa.testing import randomize
from tests.cli.test_segment import SIZES

PICTURE = np.random.default_rng(0).integers(0, 256, (10, 13), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
"""Squares, for noise has no objects."""


def segmenter(**options: Any) -> SegmentationPredictor:
    torch.manual_seed(0)
    predictor = SegmentationPredictor.create("gcsa_unet_tiny", **SIZES, **options)
    randomize(predictor.network).eval()
    return predictor


def test_an_exact_segmenter() -> None:
    predictor = segmenter()
    found = compare(predictor, PICTURE, Turn(90, reflected=True))
    assert found.upright is not None
    assert found.changed is not None
    assert np.array_equal(found.upright, predictor.predict(PICTURE).labels)
    assert found.upright.any()
    assert not found.changed.any()
    assert found.seen.shape == (52, 40, 1)
    total = 2 * len(np.unique(found.upright[found.upright > 0]))
    assert found.sentence == f"90 degrees, reflected: 0 of 2,080 pixels and 0 of {total} objects of both change"


def test_between_the_exact_poses_the_square_in_the_middle_is_compared() -> None:
    found = compare(segmenter(), PICTURE, Turn(30))
    assert found.upright is not None
    assert found.changed is not None
    assert found.seen.shape == (40, 40, 1)
    assert found.changed.shape == found.upright.shape == PICTURE.shape
    assert not found.upright[:, [*range(6), *range(46, 52)]].any()
    assert f"30 degrees: {found.changed.sum():,} of 1,600 pixels" in found.sentence
    assert found.changed.any()


def test_a_segmenter_without_a_group_changes() -> None:
    found = compare(segmenter(group="c1"), PICTURE, Turn(180))
    assert found.changed is not None
    assert found.changed.any()
    assert compare(segmenter(output="classes", num_classes=3), PICTURE, Turn(180)).sentence.startswith(
        "180 degrees: 0 of 2,080 pixels change their class"
    )


def test_changed_pixels_are_those_that_are_counted() -> None:
    rng = np.random.default_rng(1)
    labels = np.kron(rng.integers(0, 5, (6, 7)), np.ones((4, 4), int)).astype(np.int32)
    others = np.where(rng.random(labels.shape) < 0.8, labels * 3, 1).astype(np.int32)
    assert changed_pixels(labels, others).sum() == changes(labels, others)[0] > 0
    assert not changed_pixels(labels, labels * 2).any()


class Corner(torch.nn.Module):
    """Scores that see the upper half; with `whole`, all of the image."""

    num_classes = 2

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = images if self.whole else images[:, :, : images.shape[2] // 2]
        return torch.stack([seen.mean((1, 2, 3)), seen.new_zeros(len(seen))], 1)


@pytest.mark.parametrize("whole", [False, True])
def test_a_classifier(whole: bool) -> None:
    predictor = ClassificationPredictor(Corner(whole), Prepare(32, (0.5,), (0.5,)), ("a", "b"))
    picture = np.repeat(np.arange(0, 256, 8, dtype=np.uint8)[:, None], 32, 1)
    found = compare(predictor, picture, Turn(180))
    first, a, b = found.sentence.splitlines()
    before, after = (float(part.split()[-1]) for part in a.split(", rotated"))
    assert abs(before + float(b.split(": ")[1].split(",")[0]) - 1) < 1e-3
    assert (abs(before - after) > 0.1) is not whole
    assert first.startswith("180 degrees: the largest change is ")
    assert (found.upright, found.changed, found.seen.shape) == (None, None, (32, 32, 1))
