"""`gcsa.load` of classifiers: class scores and features that stay the same for every pose of an image."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image

import gcsa
from gcsa._utils.published import published
from gcsa.images.prepare import Prepare
from gcsa.models.create import create_model
from gcsa.tasks.classification.module import Classifier
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.testing import randomize
from tests.errors import raises
from tests.integrations.pictures import largest_change, patches, poses

WEIGHTS = "gcsa_pooled_small.pcam"
PREPARE = Prepare(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.fixture(scope="module")
def predictor() -> ClassificationPredictor:
    return gcsa.load(WEIGHTS)  # type: ignore[return-value]


def test_scores_by_name(predictor: ClassificationPredictor, tmp_path: Path) -> None:
    pixels = patches(2)
    x = torch.stack([predictor.preprocess(image) for image in pixels])
    with torch.no_grad():
        expected = predictor.network(x).softmax(1)
    results = predictor.predict(list(pixels), batch_size=1)
    for row, result in zip(expected, results, strict=True):
        assert list(result.scores) == ["normal", "tumour"]
        assert list(result.scores.values()) == pytest.approx(row.tolist(), abs=1e-5)
        assert (result.label, result.confidence) == (("normal", "tumour")[row.argmax()], max(result.scores.values()))
    Image.fromarray(pixels[0]).save(tmp_path / "a.png")
    tensor = torch.from_numpy(pixels[0]).permute(2, 0, 1)
    for image in (str(tmp_path / "a.png"), tmp_path / "a.png", pixels[0], tensor, tensor / 255):
        assert predictor.predict(image) == results[0], type(image)
    assert predictor.predict(pixels) == predictor.predict(tuple(pixels)) == predictor.predict(list(pixels))
    assert (predictor.kind, predictor.group.name) == ("classification", "d4")
    with raises("image.unreadable"):
        predictor.predict(tmp_path / "nothing.png")


def test_features_are_those_of_the_classifier(predictor: ClassificationPredictor) -> None:
    network: Any = predictor.network
    pixels = list(patches(2))
    features = predictor.features(pixels)
    assert features.shape == (2, network.head_hidden_size)
    assert torch.equal(predictor.features(pixels[0]), features[0])
    with torch.no_grad():
        logits = network(torch.stack([predictor.preprocess(image) for image in pixels]))
        assert torch.allclose(network.get_classifier()(features), logits, atol=1e-4)


@pytest.mark.parametrize("cut", [(96, 96), (95, 80), (81, 96), (60, 61), (40, 39)])
def test_invariant(predictor: ClassificationPredictor, cut: tuple[int, int]) -> None:
    """Cropped and resized too, with any margins."""
    images = patches()[:, : cut[0], : cut[1]]
    assert largest_change(predictor.embedding, predictor.preprocess, images) < 1e-5
    scores = [predictor.predict(pose).confidence for pose in poses(images[0])]
    assert scores == pytest.approx([scores[0]] * 8, abs=1e-5)


def test_resizing_by_pillow_depends_on_the_pose(predictor: ClassificationPredictor) -> None:
    """The negative control: why `Prepare` does not resize by Pillow."""

    def prepare(image: Any) -> torch.Tensor:
        return predictor.preprocess(Image.fromarray(image).resize((96, 96)))

    assert largest_change(predictor.embedding, prepare, patches()[:, 8:-8, 8:-8]) > 1e-4  # type: ignore[arg-type]


def test_models_of_timm() -> None:
    model = create_model("test_efficientnet", num_classes=5)
    predictor = ClassificationPredictor(model, PREPARE)
    assert predictor.features(list(patches(2))).shape == (2, model.head_hidden_size)
    assert list(predictor.predict(patches(1)[0]).scores) == ["0", "1", "2", "3", "4"]
    assert predictor.group.name == "c1"


def test_networks_that_do_not_fit() -> None:
    sizes: dict[str, Any] = dict(fields=4, scalar_fields=8, depth=1, stem_fields=(4, 4))
    unpooled = timm.create_model("gcsa_pooled_small", num_classes=0, global_pool="", **sizes)
    with raises("network.map"):
        ClassificationPredictor(unpooled, PREPARE).features(patches(1)[0])
    grey = randomize(timm.create_model("gcsa_pooled_small", in_chans=1, num_classes=2, **sizes))
    with raises("network.channels"):
        ClassificationPredictor(grey, PREPARE)
    with raises("network.classes"):
        ClassificationPredictor(grey, Prepare(32, (0.5,), (0.5,)), ("a", "b", "c"))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"mean": None}, "weights.preprocessing"),
        ({"input_size": [3, 96, 104]}, "weights.not_square"),
        ({"std": [0.2]}, "weights.channels"),
    ],
)
def test_configs_that_cannot_work(change: dict[str, Any], key: str, tmp_path: Path) -> None:
    folder = shutil.copytree(published(WEIGHTS), tmp_path / "weights")  # type: ignore[arg-type]
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= change
    (folder / "config.json").write_text(json.dumps(config))
    with raises(key):
        gcsa.load(folder)


def test_a_checkpoint_brings_its_preprocessing(tmp_path: Path) -> None:
    """Without a folder of weights beside it; one without preprocessing is refused."""
    model = {"name": "gcsa_tiny", "group": "c4", "depth": 1, "fields": 4}
    preprocessing = dict(input_size=[1, 28, 28], mean=[0.3], std=[0.2], pad="white", label_names=["a", "b"])
    options: dict[str, Any] = dict(optimizer={"opt": "adamw", "lr": 1e-3}, num_classes=2, in_chans=1)
    schedule = {"name": "constant", "warmup": 0.0, "final": 0.0}
    module = Classifier(model=model, schedule=schedule, preprocessing=preprocessing, **options)
    stored: Any = {"state_dict": module.state_dict(), "hyper_parameters": dict(module.hparams)}
    torch.save(stored, tmp_path / "best.ckpt")
    predictor: Any = gcsa.load(tmp_path / "best.ckpt")
    assert predictor.preprocess == Prepare(28, (0.3,), (0.2,), "white")
    assert predictor.class_names == ("a", "b")
    del stored["hyper_parameters"]["preprocessing"]
    torch.save(stored, tmp_path / "best.ckpt")
    with raises("weights.preprocessing"):
        gcsa.load(tmp_path / "best.ckpt")
