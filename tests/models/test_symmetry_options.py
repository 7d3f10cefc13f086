"""Networks of timm made exact by the option `symmetry`, from training to the weights and every command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from safetensors.torch import save_file

import gcsa
from gcsa.models.create import create_model
from gcsa.symmetry import Averaged, Canonical
from gcsa.tasks.classification.evaluate import evaluate
from gcsa.tasks.classification.pretrained import load_pretrained
from gcsa.testing import assert_invariant
from tests.errors import not_equivariant, raises
from tests.runs import TINY, composed, train

NAME = "test_efficientnet"
CONF = Path(__file__).parents[2] / "conf"


@pytest.mark.parametrize("symmetry", ["averaged", "canonical", "learned"])
@pytest.mark.parametrize("name", ["d4", "c4"])
def test_models_are_exact(symmetry: str, name: str) -> None:
    torch.manual_seed(0)
    model: Any = create_model(NAME, num_classes=3, symmetry=symmetry, symmetry_group=name)
    assert isinstance(model, Averaged if symmetry == "averaged" else Canonical)
    assert (model.num_classes, model.num_features, str(model.group)) == (3, 256, name)
    x = torch.randn(3, 3, 64, 64, dtype=torch.float64)
    assert_invariant(model, x, name)
    with not_equivariant():
        assert_invariant(model.network, x, name)


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        (NAME, {"symmetry": "mean"}, "symmetry"),
        (NAME, {"symmetry": "averaged", "symmetry_group": "c8"}, "symmetry_group"),
        (NAME, {"symmetry_group": "c4"}, "symmetry_group.needs_symmetry"),
        ("gcsa_small", {"symmetry": "averaged"}, "symmetry.own_group"),
    ],
)
def test_options_that_cannot_work(name: str, options: dict[str, Any], key: str) -> None:
    with raises(key):
        create_model(name, **options)


@pytest.mark.parametrize("symmetry", ["averaged", "learned"])
def test_from_training_to_predictions(symmetry: str, tmp_path: Path) -> None:
    train(composed(tmp_path, *TINY, "trainer.max_epochs=1", "test=true", f"model.symmetry={symmetry}"), tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["results"]["invariance_error"] < 1e-5
    image = np.random.default_rng(0).integers(0, 255, (28, 28), dtype=np.uint8)
    answers = []
    for source in (tmp_path / "weights", tmp_path / "checkpoints/best.ckpt"):
        predictor: Any = gcsa.load(source)
        assert str(predictor.group) == "d4"
        answers.append(predictor.predict(image).scores["3"])
        for other in (np.rot90(image), np.fliplr(image)):
            assert predictor.predict(other.copy()).scores["3"] == pytest.approx(answers[0], abs=1e-6)
            torch.testing.assert_close(predictor.features(other.copy()), predictor.features(image))
    assert answers[0] == pytest.approx(answers[1], abs=1e-6)
    with pytest.raises(TypeError, match="symmetry"):  # rather than the network alone, which is not exact
        timm.create_model(f"local-dir:{tmp_path / 'weights'}", pretrained=True)


def test_pretrained_weights_go_into_the_network_within(tmp_path: Path) -> None:
    plain: Any = timm.create_model(NAME, num_classes=3)
    save_file(plain.state_dict(), tmp_path / "net.safetensors")
    options = {"num_classes": 3, "in_chans": 3, "symmetry": "learned"}
    wrapped: Any = create_model(NAME, **options)
    chooser = {name: tensor.clone() for name, tensor in wrapped.chooser.state_dict().items()}
    load_pretrained(wrapped, {"name": NAME, **options}, str(tmp_path / "net.safetensors"))
    for name, tensor in plain.state_dict().items():
        assert torch.equal(wrapped.network.state_dict()[name], tensor)
    assert all(torch.equal(wrapped.chooser.state_dict()[name], tensor) for name, tensor in chooser.items())


def test_evaluation_of_a_network_made_exact(tmp_path: Path) -> None:
    options = {"model": NAME, "symmetry": "averaged", "symmetry_group": "c4", "limit": 20, "curve_images": 10}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config: Any = OmegaConf.to_container(compose("evaluate", ["data=digits"]), resolve=False)
    report = evaluate({**config, **options}, tmp_path)
    assert max(report["invariance"].values()) < 1e-5
    assert (
        max(evaluate({**config, **options, "symmetry": None, "symmetry_group": None}, tmp_path)["invariance"].values())
        > 1e-3
    )
    for other, key in (
        ({"model": "gcsa_tiny.rotmnist"}, "symmetry.exact"),
        ({"symmetry": None}, "symmetry_group.needs_symmetry"),
        ({"symmetry": "learned"}, "symmetry"),
    ):
        with raises(key):
            evaluate({**config, **options, **other}, tmp_path)
