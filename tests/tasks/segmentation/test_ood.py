"""The OOD score of a segmenter: the same in every pose, with and without tiles, and kept by its weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from skimage.data import coffee

import gcsa
from gcsa.images.windows import ArrayImage
from gcsa.tasks.ood import OODScorer
from gcsa.tasks.segmentation import SegmentationPredictor
from gcsa.weights import annotate
from tests.errors import raises
from tests.tasks.segmentation.networks import picture, untrained


@pytest.fixture(scope="module", params=["instances", "classes"])
def predictor(request: pytest.FixtureRequest) -> SegmentationPredictor:
    """With the statistics of small crops of noise."""
    torch.manual_seed(0)
    made = untrained(output=request.param)
    rng = np.random.default_rng(0)
    rows: list[Any] = [made.features(ArrayImage(rng.random((40, 40, 3)))) for _ in range(30)]
    made.ood_scorer = OODScorer.fit(torch.stack(rows[:20]), torch.stack(rows[20:]))
    assert made.ood_scorer is not None
    return made


def test_it_is_the_same_in_every_pose(predictor: SegmentationPredictor) -> None:
    image = picture(41, 52)
    ood_score = predictor.predict(image).ood_score
    assert ood_score > 0
    for k in range(4):
        assert predictor.predict(np.rot90(image, k)).ood_score == ood_score
        assert predictor.predict(np.rot90(image[::-1], k)).ood_score == ood_score


def test_it_is_of_the_features(predictor: SegmentationPredictor) -> None:
    image = picture(41, 52)
    features = predictor.features(ArrayImage(image))
    assert predictor.ood_scorer is not None
    assert features is not None
    assert predictor.predict(image).ood_score == pytest.approx(float(predictor.ood_scorer(features[None])), rel=1e-9)
    assert predictor.predict(image, tile=24).ood_score > 0
    assert predictor.predict(np.zeros((41, 52, 3), np.uint8)).ood_score > predictor.predict(image).ood_score


def test_weights_keep_it(predictor: SegmentationPredictor, tmp_path: Path) -> None:
    again: Any = gcsa.load(predictor.save_pretrained(tmp_path / "weights"))
    image = picture(41, 52)
    assert again.predict(image).ood_score == pytest.approx(predictor.predict(image).ood_score, rel=1e-3)
    again.ood_scorer = None
    assert again.predict(image).ood_score is None


def test_that_of_another_network_is_refused_when_it_is_loaded(predictor: SegmentationPredictor, tmp_path: Path) -> None:
    folder = predictor.save_pretrained(tmp_path / "weights")
    row = np.random.default_rng(0).normal(size=(30, 5))
    other = OODScorer.fit(torch.from_numpy(row[:20]), torch.from_numpy(row[20:]))
    assert other is not None
    annotate(folder, ood_score=other.entry())
    with raises("weights.features"):
        gcsa.load(folder)


def test_published_nuclei() -> None:
    """Nuclei score below 1, and a cup of coffee above."""
    loaded: Any = gcsa.load("gcsa_unet_tiny.nuclei")
    nuclei = Path(__file__).parents[2] / "stored/nuclei.png"
    assert loaded.predict(nuclei).ood_score < 1 < loaded.predict(coffee()[:256, :256]).ood_score
