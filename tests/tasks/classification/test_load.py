import json
import shutil

import numpy as np
import pytest
import timm
import torch
from gcsa.tasks.classification.load import load_model
from PIL import Image

import gcsa
from gcsa.tasks.classification.data import create_datamodule
from gcsa.weights import save_classifier

DIGITS = create_datamodule("digits")
IMAGES = torch.randn(2, 1, 28, 28)


def test_checkpoint_and_folder_give_the_same_trained_model(trained):
    (first, _), (second, _) = (load_model(s, DIGITS) for s in (f"{trained}/best.ckpt", f"local-dir:{trained}/weights"))
    assert torch.equal(first.eval()(IMAGES), second.eval()(IMAGES))
    assert torch.equal(first.head.fc.weight, torch.load(trained / "best.ckpt")["state_dict"]["model.head.fc.weight"])


@pytest.mark.parametrize("name", ["gcsa_tiny", "resnet10t", "vit_tiny_patch16_224"])
def test_a_name_gives_random_weights_for_the_data(name):
    model, trained = load_model(name, DIGITS)
    assert not trained
    assert model(IMAGES).shape == (2, 10)


def test_a_trained_model_says_so(trained):
    assert load_model(f"{trained}/best.ckpt", DIGITS)[1]
    assert load_model(f"local-dir:{trained}/weights", DIGITS)[1]
    assert load_model(f"{trained}/weights", DIGITS)[1]


def test_images_become_squares_as_in_training(tmp_path):
    patches(tmp_path)
    model = timm.create_model("gcsa_tiny_c4", depth=1, fields=4, num_classes=2, in_chans=3)
    about = dict(input_size=(3, 28, 28), mean=(0.5,) * 3, std=(0.5,) * 3, label_names=("normal", "tumour"))
    for pad in ("black", None):
        folder = save_classifier(model, tmp_path / "weights", pad=pad, **about)
        data = create_datamodule("image_folder", path=tmp_path, image_size=28, pad="white")
        loaded = load_model(str(folder), data)[0]
        assert data.pad == (pad or "white")
        assert loaded.pretrained_cfg["crop_mode"] == ("border" if pad else "center")
        timm.create_model(f"local-dir:{folder}", pretrained=True)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("{", '{"pad": "red",', 1))
    with pytest.raises(ValueError, match=r"config.json is damaged: its pad is red"):
        load_model(str(folder), data)


def test_the_name_of_published_weights_gives_them():
    model, trained = load_model("gcsa_tiny.rotmnist", DIGITS)
    assert trained
    assert torch.equal(model.head.fc.weight, gcsa.load("gcsa_tiny.rotmnist").network.head.fc.weight)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("gcsa_tiny.nothing", r"unknown model 'gcsa_tiny\.nothing'.*gcsa_tiny\.rotmnist"),
        ("gcsa_ocr_tiny.print.de19x", "unknown model"),
        ("resnet9000", "unknown model 'resnet9000'.*gcsa_tiny.*resnet"),
        ("nowhere/best.ckpt", "there is no checkpoint nowhere/best.ckpt"),
        ("local-dir:nowhere", "there is no nowhere/config.json"),
        ("gcsa_base", "28 x 28 breaks the exact equivariance.*resize 28 to 16 or 32"),
    ],
)
def test_what_is_not_there_or_does_not_fit(source, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_model(source, DIGITS)


def test_damaged_files(trained, tmp_path):
    whole = (trained / "best.ckpt").read_bytes()
    for content in (b"", b"not a checkpoint", whole[: len(whole) // 2]):
        (tmp_path / "best.ckpt").write_bytes(content)
        with pytest.raises(ValueError, match=r"best.ckpt is damaged or not a checkpoint of train.py"):
            load_model(str(tmp_path / "best.ckpt"), DIGITS)
    for config, weights in (("{", b""), ((trained / "weights" / "config.json").read_text(), b"short")):
        (tmp_path / "config.json").write_text(config)
        (tmp_path / "model.safetensors").write_bytes(weights)
        with pytest.raises(ValueError, match="is damaged or not"):
            load_model(f"local-dir:{tmp_path}", DIGITS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "gcsa_tiny_c8"}, "other.ckpt holds another architecture: its head"),
        ({"name": "resnet10t", "fields": None, "depth": None}, "other.ckpt holds another architecture: its bn1"),
        ({"name": "no_such"}, "unknown model 'no_such'"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_checkpoints_of_another_architecture(trained, tmp_path, change, message):
    stored = torch.load(trained / "best.ckpt")
    stored["hyper_parameters"]["model"] |= change
    torch.save(stored, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match=message):
        load_model(str(tmp_path / "other.ckpt"), DIGITS)


def test_the_checkpoint_of_a_run_with_an_adapter(trained, tmp_path):
    stored = torch.load(trained / "best.ckpt")
    stored["hyper_parameters"]["adapter"] = {"rank": 8}
    (tmp_path / "checkpoints").mkdir()
    torch.save(stored, tmp_path / "checkpoints/best.ckpt")
    with pytest.raises(ValueError, match=f"best.ckpt has an adapter: give local-dir:{tmp_path}/weights"):
        load_model(f"{tmp_path}/checkpoints/best.ckpt", DIGITS)


def test_other_projects_checkpoints(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match=r"not a checkpoint of train\.py"):
        load_model(str(tmp_path / "other.ckpt"), DIGITS)


def test_data_the_model_was_not_made_for(trained):
    with pytest.raises(ValueError, match="tells 10 classes apart and data=pcam has 2"):
        load_model(f"{trained}/best.ckpt", create_datamodule("pcam"))
    with pytest.raises(ValueError, match="takes 1 channels and data=cifar10 has 3"):
        load_model(f"{trained}/best.ckpt", create_datamodule("cifar10"))
    with pytest.raises(ValueError, match="does not take the 1 x 28 x 28 images of data=digits"):
        load_model("vgg11", DIGITS)


def patches(folder, names=("normal", "tumour")):
    """A test split only, as people have it who evaluate what others trained."""
    generator = np.random.default_rng(0)
    for name in names:
        (folder / "test" / name).mkdir(parents=True)
        for i in range(3):
            levels = generator.integers(0, 255, (96, 96, 3)).astype(np.uint8)
            Image.fromarray(levels).save(folder / "test" / name / f"{i}.png")
    return folder


def test_images_are_normalised_as_the_weights_say(tmp_path):
    data = create_datamodule("image_folder", path=patches(tmp_path), image_size=96)
    of_the_folder = data.mean, data.std
    model, _ = load_model("gcsa_pooled_small.pcam", data)
    assert (data.mean, data.std) == (model.pretrained_cfg["mean"], model.pretrained_cfg["std"]) != of_the_folder
    data.setup("test")
    images, _ = next(iter(data.test_dataloader()))
    levels = images * torch.tensor(data.std).view(3, 1, 1) + torch.tensor(data.mean).view(3, 1, 1)
    assert levels.min() >= -1e-6
    assert 0.99 < levels.max() <= 1 + 1e-6
    with torch.no_grad():
        right = model(images)
        wrong = model(
            (levels - torch.tensor(of_the_folder[0]).view(3, 1, 1)) / torch.tensor(of_the_folder[1]).view(3, 1, 1)
        )
    assert (right - wrong).abs().max() > 0.1, "the constants of the folder give other answers"
    with pytest.raises(ValueError, match="holds a test split only: training needs a folder train"):
        data.setup("fit")


def test_a_checkpoint_knows_its_images_from_the_weights_of_its_run(trained, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(trained / "best.ckpt", tmp_path / "checkpoints")
    data = create_datamodule("digits")
    before = data.mean
    load_model(str(tmp_path / "checkpoints/best.ckpt"), data)
    assert data.mean == before
    shutil.copytree(trained / "weights", tmp_path / "weights")
    config = json.loads((tmp_path / "weights/config.json").read_text())
    config["pretrained_cfg"]["mean"] = [0.75]
    (tmp_path / "weights/config.json").write_text(json.dumps(config))
    load_model(str(tmp_path / "checkpoints/best.ckpt"), data)
    assert data.mean == (0.75,)


def test_other_sizes_and_classes_are_refused(tmp_path):
    folder = patches(tmp_path / "a")
    with pytest.raises(ValueError, match=r"trained on images of 96 x 96 .* 224 x 224: set data.image_size=96"):
        load_model("gcsa_pooled_small.pcam", create_datamodule("image_folder", path=folder, image_size=224))
    other = create_datamodule("image_folder", path=patches(tmp_path / "b", ("good", "ill")), image_size=96)
    with pytest.raises(
        ValueError, match="tells normal, tumour apart and data=image_folder good, ill: name the classes"
    ):
        load_model("gcsa_pooled_small.pcam", other)
