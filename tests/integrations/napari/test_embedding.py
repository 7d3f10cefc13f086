"""The features of objects: the same when the image and its labels rotate, and near for objects that look alike."""

from typing import Any

import numpy as np
import pytest
import torch

from gcsa.images.prepare import Prepare
from gcsa.integrations.napari.embedding import crop, embed_objects, principal_components
from gcsa.models.create import create_model
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.testing import randomize
from tests.errors import raises


def classifier(group: str = "d4") -> ClassificationPredictor:
    torch.manual_seed(0)
    network = create_model("gcsa_tiny", in_chans=1, group=group, fields=4, depth=1, img_size=16)
    return ClassificationPredictor(randomize(network).eval(), Prepare(16, (0.5,), (0.5,)))


def scene() -> tuple[Any, Any]:
    """Five objects of odd and even sides, some at the border, in noise; the labels leave out 3."""
    labels = np.zeros((50, 60), np.int64)
    for number, box in {
        1: (0, 7, 0, 6),
        2: (20, 31, 22, 30),
        4: (40, 50, 3, 16),
        5: (8, 15, 40, 47),
        6: (33, 34, 59, 60),
    }.items():
        labels[box[0] : box[1], box[2] : box[3]] = number
    picture = np.random.default_rng(0).integers(0, 120, labels.shape) + 100 * (labels > 0)
    return picture.astype(np.uint8), labels


@pytest.mark.parametrize(("group", "is_exact"), [("d4", True), ("c1", False)])
def test_components_stay_when_the_image_rotates(group: str, is_exact: bool) -> None:
    predictor = classifier(group)
    picture, labels = scene()
    upright, share = embed_objects(predictor, picture, labels, 0, 3)
    assert list(upright) == ["index", "gcsa_1", "gcsa_2", "gcsa_3"]
    assert upright["index"].tolist() == [1, 2, 4, 5, 6]
    assert 0.5 < share < 1
    for k, flip in ((1, 1), (2, -1)):
        rotated, _ = embed_objects(predictor, np.rot90(picture, k)[::flip], np.rot90(labels, k)[::flip], 0, 3)
        same = all(np.allclose(rotated[name], upright[name], atol=1e-4 * np.ptp(upright["gcsa_1"])) for name in upright)
        assert same is is_exact


def test_a_crop_has_equal_margins() -> None:
    picture = np.arange(20 * 30).reshape(20, 30)
    cut = crop(picture, (slice(8, 11), slice(10, 14)), 8)
    assert np.array_equal(cut, picture[5:14, 8:16])
    corner = crop(picture, (slice(0, 2), slice(28, 30)), 4)
    assert np.array_equal(corner, picture[[0, 0, 1, 2]][:, [27, 28, 29, 29]])


def test_principal_components() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 3, generator=generator) * torch.tensor([9.0, 3.0, 0.1]) + 5
    scores, share = principal_components(rows, 2)
    variances = torch.linalg.eigvalsh(torch.cov(rows.double().T)).flip(0)
    assert torch.allclose(scores.var(0), variances[:2])
    assert share == pytest.approx(float(variances[:2].sum() / variances.sum()))
    assert torch.corrcoef(torch.stack([scores[:, 0], rows[:, 0].double()]))[0, 1] > 0.99, (
        "the sign is that of the largest entry"
    )
    assert principal_components(rows[:3], 10)[0].shape == (3, 2)
    assert principal_components(torch.ones(4, 3), 2) == (pytest.approx(torch.zeros(4, 2)), 1.0)


def test_deep_images_and_what_cannot_be_embedded() -> None:
    predictor = classifier()
    picture, labels = scene()
    eight, _ = embed_objects(predictor, picture, labels, 12, 2)
    deep, _ = embed_objects(predictor, picture.astype(np.uint16) * 257, labels, 12, 2)
    assert all(np.array_equal(eight[name], deep[name]) for name in eight)
    with raises("labels.shape"):
        embed_objects(predictor, picture, labels.T, 0, 2)
    with raises("labels.too_few"):
        embed_objects(predictor, picture, labels * (labels < 3), 0, 2)
