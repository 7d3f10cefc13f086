"""lightly-train itself takes and trains ours by `LightlyModel`; its own wrapper gives features that move."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from torch import nn

from gcsa.images.prepare import Prepare
from gcsa.integrations.lightly_train import LightlyModel
from gcsa.tasks import load
from gcsa.testing import assert_equivariant, randomize
from tests.errors import raises
from tests.integrations.pictures import largest_change, patches

pytestmark = pytest.mark.filterwarnings("ignore")  # of lightly-train and of what it imports
WEIGHTS = "gcsa_pooled_small.pcam"
PREPARE = Prepare(96, (0.7, 0.54, 0.7), (0.23, 0.28, 0.21))


def network(**options: Any) -> nn.Module:
    """With regular fields, random weights, norms and biases."""
    return randomize(timm.create_model("gcsa_small", fields=8, depth=1, num_heads=2, num_classes=2, **options)).eval()


def embedding(model: Any) -> nn.Module:
    """As lightly-train embeds."""
    helpers = pytest.importorskip("lightly_train._models.package_helpers")
    from lightly_train._models.embedding_model import EmbeddingModel

    return EmbeddingModel(helpers.get_wrapped_model(model, 3)).eval()


def test_what_the_classifier_decides_by() -> None:
    predictor = load(WEIGHTS)
    found = embedding(LightlyModel(predictor.network))
    x = torch.stack([predictor.preprocess(pixels) for pixels in patches(2)])
    with torch.no_grad():
        assert torch.allclose(found(x), predictor.embedding(x)[..., None, None], atol=1e-5)
    assert largest_change(found, predictor.preprocess, patches(3)) < 1e-5


@pytest.mark.parametrize("options", [dict(), dict(global_pool="avg"), dict(head_fields=12)])
def test_regular_fields(options: dict[str, Any]) -> None:
    model = network(**options)
    assert largest_change(embedding(LightlyModel(model)), PREPARE, patches(2)) < 1e-5
    own = pytest.importorskip("lightly_train._models.timm.timm_package").TIMM_PACKAGE.get_model_wrapper(model)
    assert largest_change(embedding(own), PREPARE, patches(2)) > 1e-3  # a hundred times as much


@pytest.mark.parametrize("options", [dict(), dict(group="c4", global_pool="avg", head_fields=12)])
def test_maps_move_with_the_image(options: dict[str, Any]) -> None:
    """And have as many features as the rows."""

    class Maps(LightlyModel):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.forward_features(x)["features"]

    maps = Maps(network(**options))
    x = torch.randn(2, 3, 48, 48)
    assert maps(x).shape == (2, maps.feature_dim(), 6, 6)
    assert_equivariant(maps, x, options.get("group", "d4"), "image", "image")


def test_others_are_refused() -> None:
    with raises("network.not_gcsa"):
        LightlyModel(timm.create_model("test_efficientnet"))
    with raises("network.global_pool"):
        LightlyModel(timm.create_model("gcsa_small", num_classes=0, global_pool=""))


def test_our_class_itself_is_refused_by_lightly_train() -> None:
    """Which is why there is a wrapper."""
    errors = pytest.importorskip("lightly_train.errors")
    with pytest.raises(errors.UnknownModelError, match="Unknown model: 'GCSA'"):
        embedding(network())


METHODS: dict[str, dict[str, Any]] = {
    "simclr": dict(transform_args=dict(image_size=(48, 48))),
    "dino": dict(transform_args=dict(image_size=(48, 48), local_view=dict(view_size=(24, 24), num_views=2))),
    "distillation": dict(
        transform_args=dict(image_size=(56, 56)), method_args=dict(teacher="dinov2/_vittest14")
    ),  # a small teacher with random weights
    "distillationv2": dict(
        transform_args=dict(image_size=(56, 56)), method_args=dict(teacher="dinov2/_vittest14")
    ),  # which compares maps
}


@pytest.mark.parametrize("method", METHODS)
def test_it_trains(method: str, tmp_path: Path) -> None:
    """Two steps, after which the weights of every layer but the classifier have moved, and the file that it wrote holds the trained model."""
    lightly_train = pytest.importorskip("lightly_train")
    (tmp_path / "images").mkdir()
    for place, pixels in enumerate(patches(8)):
        Image.fromarray(pixels).save(tmp_path / f"images/{place}.png")
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    options: dict[str, Any] = dict(batch_size=4, epochs=1, num_workers=0, accelerator="cpu", devices=1)
    lightly_train.pretrain(
        out=tmp_path / "out",
        data=tmp_path / "images",
        model=LightlyModel(model),
        method=method,
        precision="32-true",
        loggers={"tensorboard": None},
        trainer_args={"max_steps": 2},
        **options,
        **METHODS[method],
    )
    written = torch.load(tmp_path / "out/exported_models/exported_last.pt", weights_only=True)
    assert written.keys() == before.keys()
    trained = {name for name, parameter in model.named_parameters() if parameter.ndim > 1 and name != "head.fc.weight"}
    still = {name for name in trained if torch.equal(written[name], before[name])}
    assert still == set()
    model.load_state_dict(written)
    assert largest_change(embedding(LightlyModel(model)), PREPARE, patches(2)) < 1e-5
