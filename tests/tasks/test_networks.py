"""`gcsa.load` of networks that are not of gcsa: a predictor that gives what the network gives."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

import gcsa
from gcsa.evaluation.audited import AuditOptions
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.networks import NetworkPredictor
from gcsa.tasks.segmentation.predict import SegmentationPredictor
from tests.errors import raises
from tests.images.slide_files import tissue_picture


class Corner(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :2, 0, :3].flatten(1)


@pytest.fixture
def picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> np.ndarray:
    """In a folder with a module of networks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("their_nets.py").write_text(
        "def corner(images):\n    return images[:, :2, 0, :3].flatten(1)\ndef maps(images):\n    return images[:, :2]\n"
    )
    return tissue_picture(300, 300)


@pytest.mark.filterwarnings("ignore")  # of torch, about its older formats
def test_files_and_functions(picture: np.ndarray) -> None:
    x = torch.rand(2, 3, 224, 224)
    torch.jit.trace(Corner(), x).save("net.pt")
    torch.export.save(torch.export.export(Corner(), (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)), "net.pt2")
    found = {}
    for source in ("their_nets:corner", "net.pt", "net.pt2"):
        predictor = gcsa.load(source, trust_code=True)
        assert isinstance(predictor, NetworkPredictor)
        assert (predictor.fold(), str(predictor.group)) == (predictor, "c1")
        found[source] = predictor.predict([picture, picture[::-1]])
        assert found[source].shape == (2, 6)
        assert torch.equal(predictor.predict(picture), found[source][0])
        assert torch.equal(
            found[source], Corner()(torch.stack([predictor.preprocess(p) for p in (picture, picture[::-1])]))
        )
    assert torch.equal(found["net.pt"], found["their_nets:corner"])


def test_segmenters_where_one_is_asked_for(picture: np.ndarray) -> None:
    predictor = gcsa.load("their_nets:maps", task="segmentation", trust_code=True)
    assert isinstance(predictor, SegmentationPredictor)
    assert predictor.predict(picture).labels.shape == picture.shape[:2]


def test_classifiers_of_timm(picture: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their features are what timm gives without a classifier."""
    torch.manual_seed(0)
    network = timm.create_model("resnet18").eval()
    monkeypatch.setattr(
        "gcsa.models.foreign.timm.create_model", lambda name, pretrained: network if pretrained else None
    )
    predictor = gcsa.load("timm:resnet18", task="classification")
    assert isinstance(predictor, ClassificationPredictor)
    features = predictor.features(picture)
    assert predictor.predict(picture).label in map(str, range(1000))
    network.reset_classifier(0)
    assert torch.equal(network(predictor.preprocess(picture)[None])[0], features)


def test_an_audit_of_a_predictor(picture: np.ndarray, tmp_path: Path) -> None:
    from PIL import Image

    for i in range(2):
        Image.fromarray(np.rot90(picture, i)).save(f"{i}.png")
    Path("2.png").write_text("no image")
    files = [Path(f"{i}.png") for i in range(3)]
    found = gcsa.load("their_nets:corner", trust_code=True).audit(
        files, AuditOptions("corner", 4, kind="embedding", size=32)
    )
    assert (found.kind, found.size, len(found.failed), found.off_grid) == ("embedding", 32, 1, None)
    assert max(change.relative for change in found.changes) > 0.1
    with raises("images.unreadable"):
        gcsa.load("their_nets:corner", trust_code=True).audit(files[2:], AuditOptions("corner"))


@pytest.mark.parametrize(
    ("source", "options", "key"),
    [
        ("their_nets:corner", {"adapter": "x"}, "adapter.foreign"),
        ("their_nets:corner", {"task": "classification"}, "network.task"),
        ("timm:resnet18", {"task": "segmentation"}, "network.task"),
        ("their_nets:corner", {}, "network.trust_code"),
        ("net.pt2", {}, "network.trust_code"),
        ("their_nets:maps", {"task": "segmentation"}, "network.trust_code"),
        ("their_nets.py", {}, "network.no_name"),
        ("gcsa_tiny.rotmnist", {"outputs": "classes"}, "outputs.not_segmenter"),
    ],
)
@pytest.mark.usefixtures("picture")
def test_what_is_refused(source: str, options: dict[str, str], key: str) -> None:
    with raises(key):
        gcsa.load(source, **options)
