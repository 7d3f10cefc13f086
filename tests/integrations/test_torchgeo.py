"""TorchGeo as it is: which of its trainers take ours, and which do something else."""

import pytest
import torch

import gcsa  # noqa: F401  (registers the models)
from gcsa.tasks import load
from tests.integrations.pictures import largest_change, patches

pytestmark = pytest.mark.filterwarnings("ignore")  # of torchgeo and of what it imports
NAME, WEIGHTS = "gcsa_pooled_small", "gcsa_pooled_small.pcam"


def test_classification() -> None:
    """By a name in timm, with the published weights, and its probe trains the classifier alone."""
    trainers = pytest.importorskip("torchgeo.trainers")
    predictor = load(WEIGHTS)
    task = trainers.ClassificationTask(NAME, weights=True, in_channels=3, num_classes=2, freeze_backbone=True).eval()
    x = torch.stack([predictor.preprocess(pixels) for pixels in patches(2)])
    with torch.no_grad():
        assert torch.allclose(task(x), predictor.network(x), atol=1e-5)
    assert largest_change(task, predictor.preprocess, patches(2)) < 1e-4  # of two scores, which may be small
    trained = {name for name, parameter in task.model.named_parameters() if parameter.requires_grad}
    assert trained == {"head.fc.weight", "head.fc.bias"}


def test_simclr() -> None:
    """Its backbone gives the right features of scalar fields; of regular fields it expects a number for each channel."""
    trainers = pytest.importorskip("torchgeo.trainers")
    predictor = load(WEIGHTS)
    task = trainers.SimCLRTask(NAME, weights=True, in_channels=3, size=96).eval()
    x = torch.stack([predictor.preprocess(pixels) for pixels in patches(2)])
    with torch.no_grad():
        assert torch.allclose(task(x)[1], predictor.embedding(x), atol=1e-5)
    regular = trainers.SimCLRTask("gcsa_pyramid_tiny", in_channels=3, size=96).eval()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        regular(x)


def test_byol_listens_to_a_map() -> None:
    """To the last layer but one, which here is the one before the pooling."""
    byol = pytest.importorskip("torchgeo.trainers.byol")
    wrapped = byol.BYOL(load(WEIGHTS).network, in_channels=3, image_size=(96, 96)).eval().backbone
    wrapped(torch.randn(1, 3, 96, 96))
    assert wrapped._embedding.shape == (1, 12 * 12 * 96)
