"""How unlike the images of training an image is: the distance, its limit, and what weights keep of it."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from gcsa.tasks.ood import FEWEST_TRAINING, FEWEST_VALIDATION, OODScorer, image_statistics
from gcsa.weights import Weights
from tests.errors import raises


def drawn(count: int, features: int, seed: int) -> Tensor:
    """Features whose directions have other variances."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, features)) * np.linspace(0.5, 2, features) + 3
    return torch.from_numpy(mixed)


def fitted(features: int) -> OODScorer:
    scorer = OODScorer.fit(drawn(400, features, 0), drawn(200, features, 1))
    assert scorer is not None
    return scorer


def test_it_is_the_mahalanobis_distance() -> None:
    """With as many axes as features the covariance is that of the sample; 99 % of the validation images are within the limit."""
    training, validation = drawn(400, 5, 0), drawn(200, 5, 1)
    centred = (validation - training.mean(0)).numpy()
    expected = np.sqrt(np.einsum("bi,ij,bj->b", centred, np.linalg.inv(np.cov(training.T.numpy())), centred))
    scorer = fitted(5)
    assert np.allclose(scorer(validation).numpy() * scorer.limit, expected)
    assert (scorer(validation) > 1).double().mean() == pytest.approx(0.01)


@pytest.mark.parametrize("features", [5, 40])
def test_far_images_are_told(features: int) -> None:
    """Along the axes, and beyond them where there are fewer axes than features."""
    scorer = fitted(features)
    assert len(scorer.axes) == min(features, 32)
    assert (scorer(drawn(500, features, 2)) > 1).double().mean() < 0.05
    assert (scorer(drawn(100, features, 3) + 5) > 1).all()
    assert scorer(scorer.mean[None]).item() == 0


def test_weights_keep_it() -> None:
    scorer, rows = fitted(40), drawn(10, 40, 4)
    kept = Weights("", "", "", {}, {}, entries={"ood_score": json.loads(json.dumps(scorer.entry()))})
    again = OODScorer.of(kept)
    assert again is not None
    assert torch.allclose(again(rows), scorer(rows), rtol=1e-5)
    assert OODScorer.of(Weights("", "", "", {}, {})) is None


def test_it_is_not_told_from_too_little() -> None:
    training, validation = drawn(100, 4, 0), drawn(100, 4, 1)
    assert OODScorer.fit(training[: FEWEST_TRAINING - 1], validation) is None
    assert OODScorer.fit(training, validation[: FEWEST_VALIDATION - 1]) is None
    assert OODScorer.fit(training * 0, validation) is None
    assert OODScorer.fit(training, validation / 0) is None


def test_features_of_another_network_are_refused() -> None:
    with raises("weights.features"):
        fitted(5)(drawn(3, 4, 0))


@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (2, 1, 27, 41), (2, 3, 3, 5)])
def test_statistics_are_the_same_in_every_pose(shape: tuple[int, ...]) -> None:
    images = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = image_statistics(images)
    for pose in (images.rot90(1, (2, 3)), images.rot90(2, (2, 3)), images.flip(2), images.mT):
        assert torch.allclose(image_statistics(pose), found, rtol=0, atol=1e-4)
    assert not torch.allclose(image_statistics(images * 1.2), found, rtol=0, atol=1e-2)


def test_statistics_of_what_does_not_vary() -> None:
    for value in (0.0, 1.0, -3.0):
        assert image_statistics(torch.full((1, 3, 9, 9), value)).isfinite().all()
