"""Runs that start from pretrained weights of timm: where these come from, what is frozen, and what is refused."""

import json
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from pytorch_lightning import Trainer
from pytorch_lightning.tuner import Tuner
from safetensors.torch import load_file, save_file

from gcsa.symmetry import Averaged
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.module import Classifier
from gcsa.tasks.classification.pretrained import load_pretrained
from gcsa.training.callbacks import Freeze
from gcsa.training.optimizer import make_optimizer
from tests.errors import raises
from tests.runs import TINY, composed, train

SHORT = (*TINY, "trainer.max_epochs=1", "trainer.limit_train_batches=2", "callbacks=no_ema")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Weights of a network of 7 classes for images of 3 channels."""
    torch.manual_seed(5)
    save_file(timm.create_model("test_efficientnet", num_classes=7).state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_what_is_frozen_stays_as_it_was_pretrained(file: Path, tmp_path: Path) -> None:
    """Running statistics too; the classifier is new, and the first layer sums the weights of the channels."""
    options = (*SHORT, f"model.pretrained={file}", "freeze=[conv_stem,bn1,blocks]")
    with raises("data.channels"):
        train(composed(tmp_path / "run", *options), tmp_path / "run")
    for name in "ab":
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(40):
            picture(i).save(tmp_path / "images" / name / f"{i}.png")
    data = ("data=image_folder", f"data.path={tmp_path / 'images'}", "data.image_size=32", "data.limit_train=null")
    train(composed(tmp_path / "run", *options, *data), tmp_path / "run")
    before, after = load_file(file), load_file(tmp_path / "run/weights/model.safetensors")
    frozen = [name for name in before if name.startswith(("conv_stem", "bn1", "blocks"))]
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert not torch.equal(before["conv_head.weight"], after["conv_head.weight"])
    assert not torch.equal(before["bn2.running_mean"], after["bn2.running_mean"])
    assert after["classifier.weight"].shape[0] == 2
    results = json.loads((tmp_path / "run/results.json").read_text())
    trained = sum(
        tensor.numel() for name, tensor in after.items() if name.startswith(("conv_head", "bn2", "classifier"))
    )
    not_parameters = sum(tensor.numel() for name, tensor in after.items() if name.startswith("bn2.") and "_" in name)
    assert results["trainable"] == trained - not_parameters < results["parameters"]


@pytest.mark.parametrize("num_classes", [7, 2])
def test_a_classifier_that_fits_is_kept(file: Path, num_classes: int) -> None:
    """Of a user's own file; timm's own weights of this model tell 1000 classes apart."""
    network = timm.create_model("test_efficientnet", num_classes=num_classes)
    load_pretrained(network, {"name": "test_efficientnet", "num_classes": num_classes}, str(file))
    stored, loaded = load_file(file), network.state_dict()
    assert torch.equal(loaded["conv_head.weight"], stored["conv_head.weight"])
    assert torch.equal(loaded["classifier.weight"], stored["classifier.weight"]) == (num_classes == 7)


def picture(seed: int) -> Image.Image:
    pixels = torch.randint(255, (32, 32, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return Image.fromarray(pixels.numpy())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("nowhere.safetensors", "there is no nowhere.safetensors"),
        ("3", "model.pretrained=3 must be true, false, or a file"),
        ("true", "the pretrained weights of test_efficientnet cannot be loaded: .*: name a file"),
        ("FILE", "other.safetensors cannot be loaded: .*conv_stem.weight.*: name weights of this model"),
    ],
)
def test_weights_that_cannot_be_had(value: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError("there is no internet")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", refuse)
    if value == "FILE":
        value = str(tmp_path / "other.safetensors")
        save_file({"weight": torch.zeros(3)}, value)
    source = composed(tmp_path / "run", *SHORT, f"model.pretrained={value}").model.pretrained
    network = timm.create_model("test_efficientnet")
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        load_pretrained(network, {"name": "test_efficientnet"}, source)


@pytest.mark.parametrize(
    ("names", "key"),
    [
        ("stem", "freeze"),
        (["stem"], "freeze.module"),
        (["conv_stem", "bn1", "blocks", "conv_head", "bn2", "classifier"], "freeze.everything"),
    ],
)
def test_what_cannot_be_frozen(names: object, key: str) -> None:
    with raises(key):
        Freeze(timm.create_model("test_efficientnet"), names)  # type: ignore[arg-type]


def test_the_network_in_a_wrapper_is_frozen_by_its_own_names() -> None:
    exact = Averaged(timm.create_model("test_efficientnet"), "c4")
    Freeze(exact, ["conv_stem"])
    trained = {name: parameter.requires_grad for name, parameter in exact.network.named_parameters()}
    assert [name for name, is_trained in trained.items() if not is_trained] == ["conv_stem.weight"]


@pytest.mark.parametrize("name", ["gcsa_tiny", "test_efficientnet"])
def test_layer_decay_reaches_the_rates(name: str) -> None:
    """timm leaves it to its own schedulers, which are not used here."""
    model = timm.create_model(name)
    rates = [g["lr"] for g in make_optimizer(model, {"opt": "adamw", "lr": 0.1, "layer_decay": 0.5}).param_groups]
    assert max(rates) == 0.1
    assert min(rates) < 0.1 / 4
    with raises("optimizer.layer_decay", value=1.5):
        make_optimizer(model, {"opt": "adamw", "lr": 0.1, "layer_decay": 1.5})
    with raises("optimizer.layer_decay"):
        make_optimizer(torch.nn.Linear(2, 2), {"opt": "adamw", "lr": 0.1, "layer_decay": 0.5})


def test_lightning_finds_a_learning_rate(tmp_path: Path) -> None:
    module = Classifier(
        {"name": "test_efficientnet"},
        {"opt": "adamw", "lr": 1e-7},
        {"name": "constant", "warmup": 0.0, "final": 0.0},
        10,
        1,
    )
    trainer = Trainer(
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        accelerator="cpu",
        default_root_dir=tmp_path,
    )
    found = Tuner(trainer).lr_find(module, datamodule=create_datamodule("digits", batch_size=16), num_training=30)
    assert found is not None
    assert module.lr == module.hparams["optimizer"]["lr"] == found.suggestion() > 1e-6
