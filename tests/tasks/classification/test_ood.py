"""The OOD score of a classifier: its scores stay, it is the same in every pose, and a run writes it."""

from typing import Any

import pytest
import torch
from skimage.data import coffee

import gcsa
from gcsa.models.create import create_model
from gcsa.symmetry import Averaged
from gcsa.tasks.classification import predict
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.classification.task import fit_ood_scorer
from gcsa.tasks.ood import image_statistics
from gcsa.weights import read
from tests.integrations.pictures import patches, poses

WEIGHTS = "gcsa_pooled_small.pcam"


@pytest.fixture(scope="module")
def predictor() -> Any:
    loaded: Any = gcsa.load(WEIGHTS)
    assert loaded.ood_scorer is not None
    return loaded


def test_scores_stay_and_tissue_is_not_out_of_distribution(predictor: ClassificationPredictor) -> None:
    image, other = patches(2)
    results = predictor.predict([*poses(image), other])
    assert max(result.ood_score for result in results) < 1
    assert [result.ood_score for result in results[:8]] == pytest.approx([results[0].ood_score] * 8, rel=1e-4)
    assert predictor.predict(coffee()).ood_score > 1
    x = torch.stack([predictor.preprocess(image)])
    with torch.no_grad():
        assert torch.equal(predictor.with_ood_scores()(x)[:, :2], predictor.network(x))


def test_a_network_made_exact(predictor: ClassificationPredictor) -> None:
    x = torch.stack([predictor.preprocess(image) for image in patches(2)])
    with torch.no_grad():
        rows, plain = predictor.with_ood_scores(Averaged(predictor.network)).eval()(x), predictor.with_ood_scores()(x)
        twice = predictor.with_ood_scores(Averaged(Averaged(predictor.network, "c2"), "c2")).eval()(x)
    assert torch.allclose(rows, plain, atol=1e-4)
    assert torch.allclose(twice, plain, atol=1e-4)


def test_without_statistics_there_is_none(predictor: ClassificationPredictor) -> None:
    other: Any = gcsa.load(WEIGHTS)
    other.ood_scorer = None
    assert other.predict(patches(1)[0]).ood_score is None
    assert other.with_ood_scores() is other.network


def test_with_an_adapter_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics are of the base, whose features an adapter changes."""
    monkeypatch.setattr(predict, "_adapted", lambda network, adapter, names: (network, names))
    weights = read(WEIGHTS)
    assert predict.make_predictor(weights).ood_scorer is not None
    assert predict.make_predictor(weights, "adapter").ood_scorer is None


def test_a_run_measures_it() -> None:
    data = create_datamodule("digits")
    model: Any = create_model("gcsa_tiny", num_classes=10, in_chans=1, depth=1, fields=4)
    scorer = fit_ood_scorer(model, data)
    assert scorer is not None
    statistics = image_statistics(torch.zeros(1, 1, 2, 2)).shape[1]
    assert len(scorer.mean) == statistics + 4 * (1 + len(model.stages))
    assert fit_ood_scorer(torch.nn.Flatten(), data) is None
