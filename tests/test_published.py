"""The published weights: each gives what it gave when it was published; with the data at hand, also how well they read."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.models import save_for_hf
from torch import Tensor

import gcsa
from gcsa._utils.published import list_models, list_weights, published
from gcsa.images.reader import read_picture
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.recognition.data.line_image import read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import measure
from gcsa.testing import assert_equivariant
from gcsa.weights import read

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("GCSA_DATA", ROOT / ".." / "shared" / "data"))
IMAGES = Path(__file__).parent / "stored"
EXPECTED: dict[str, dict[str, Any]] = json.loads((IMAGES / "expected.json").read_text(encoding="utf-8"))
BASE = "gcsa_ocr_tiny.print"
CLASSIFIERS = sorted(name for name, content in EXPECTED.items() if all(isinstance(v, list) for v in content.values()))


def test_every_published_folder_is_checked_below() -> None:
    assert list_weights() == sorted(EXPECTED) == sorted(path.name for path in (ROOT / "weights").iterdir())


@pytest.mark.parametrize("name", ["gcsa_tiny", "../weights/gcsa_tiny.rotmnist", "", ".", "gcsa_tiny.rotmnist/", "/"])
def test_other_names_are_not_published(name: str) -> None:
    assert published(name) is None


def test_timm_lists_the_published_models() -> None:
    models = [name for name in list_models() if timm.is_model(name.partition(".")[0])]
    assert models
    assert models == timm.list_models([f"{name.partition('.')[0]}*" for name in models], pretrained=True)


@pytest.mark.parametrize("name", timm.list_models("gcsa*", pretrained=True))
def test_timm_opens_them_by_their_tag(name: str) -> None:
    reads_text = read(name).task == "recognition"
    trained = gcsa.load(name).network.encoder if reads_text else gcsa.load(name).network
    x = torch.randn(2, *timm.get_pretrained_cfg(name).input_size)
    model = timm.create_model(name, pretrained=True).eval()
    other = timm.create_model(name, pretrained=True, num_classes=3).eval()
    random = timm.create_model(name).eval()
    with torch.no_grad():
        features = trained.forward_features(x)
        assert torch.equal(model.forward_features(x), features)
        assert torch.equal(other.forward_features(x), features)
        assert not torch.allclose(random.forward_features(x), features, atol=1e-2)
        assert reads_text or torch.equal(model(x), trained(x))
    assert other(x).shape == (2, 3)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_timm_opens_them_in_its_other_ways(name: str, tmp_path: Path) -> None:
    """By a description, from a folder that it wrote, the first of them by the bare name, with other options, and as features."""
    trained = timm.create_model(name, pretrained=True).eval()
    architecture = name.partition(".")[0]
    save_for_hf(trained, str(tmp_path), safe_serialization=True)
    others = [
        timm.create_model(architecture, pretrained=True, pretrained_cfg=timm.get_pretrained_cfg(name)),
        timm.create_model(f"local-dir:{tmp_path}", pretrained=True),
    ]
    if name == f"{architecture}.{timm.get_pretrained_cfg(architecture).tag}":
        others += [
            timm.create_model(architecture, pretrained=True),
            timm.create_model(architecture, pretrained=True, pretrained_cfg_overlay=dict(mean=(0.5,))),
        ]
    x = torch.randn(1, *trained.default_cfg["input_size"])
    with torch.no_grad():
        logits = trained(x)
        assert all(torch.equal(other.eval()(x), logits) for other in others)
    features = timm.create_model(name, pretrained=True, features_only=True).eval()
    with torch.no_grad():
        assert torch.equal(features(x)[-1], trained.forward_intermediates(x, intermediates_only=True)[-1])
    assert timm.create_model(name, pretrained=True, in_chans=3).in_chans == 3


@pytest.mark.parametrize("overlay", [dict(url="https://example.invalid/x"), dict(hf_hub_id="example/invalid")])
def test_other_weights_that_are_asked_for_win(overlay: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_url", lambda url, **_: asked.append(url) or {})
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda name, **_: asked.append(name) or {})
    with pytest.raises(RuntimeError, match="Missing key"):
        timm.create_model("gcsa_pooled_small", pretrained=True, pretrained_cfg_overlay=overlay)
    assert asked == list(overlay.values())


def test_a_state_that_is_asked_for_wins() -> None:
    name = "gcsa_tiny.rotmnist"
    state = timm.create_model(name).state_dict()
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=dict(state_dict=state))
    assert all(torch.equal(mine, state[key]) for key, mine in model.state_dict().items())


def test_timm_normalises_lines_as_their_recogniser_does() -> None:
    cfg = timm.get_pretrained_cfg(BASE)
    levels = torch.full((40, 64), 255, dtype=torch.uint8)  # paper, with black and grey ink
    levels[10:20, 5:40], levels[20:22] = 0, 100
    ink = read_line(Image.fromarray(levels.numpy()))
    assert torch.allclose((levels[None] / 255 - cfg.mean[0]) / cfg.std[0], ink, atol=1e-6)


def strip(name: str) -> Tensor:
    """The images (B, C, H, H) side by side in the picture of these weights, normalised as they were trained."""
    (file,) = EXPECTED[name]
    cfg = timm.get_pretrained_cfg(name)
    picture = torch.from_numpy(np.array(Image.open(IMAGES / file))).float() / 255
    images = torch.stack(picture.view(len(picture), -1, cfg.input_size[0]).permute(2, 0, 1).split(len(picture), dim=2))
    return (images - torch.tensor(cfg.mean)[:, None, None]) / torch.tensor(cfg.std)[:, None, None]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_images_of_a_clean_clone(name: str) -> None:
    model, images = gcsa.load(name).network.eval(), strip(name)
    with torch.no_grad():
        logits = model(images)
    expected = torch.tensor(*EXPECTED[name].values())
    assert torch.allclose(logits, expected, rtol=0, atol=2e-3)
    # In training mode, batch norm of two images enlarges rounding.
    tolerance = {torch.float64: 1e-10, torch.float32: 3e-5}
    _, rotation, *_, last = model.group.exact_elements  # which generate the others
    assert_equivariant(model, images, model.group, "image", "invariant", [rotation, last], tolerance=tolerance)
    by_timm = timm.create_model(f"local-dir:{published(name)}", pretrained=True).eval()
    with torch.no_grad():
        assert torch.equal(by_timm(images), logits)


def test_the_objects_of_a_clean_clone() -> None:
    """Where their centres are, and that they turn with the image."""
    ((file, expected),) = EXPECTED["gcsa_unet_tiny.nuclei"].items()
    predictor, picture = gcsa.load("gcsa_unet_tiny.nuclei"), read_picture(IMAGES / file, 3)
    result = predictor.predict(IMAGES / file)
    assert sorted(result.objects.points.tolist()) == expected["centres"]
    for k in (1, 2, 3):
        assert np.array_equal(predictor.predict(np.rot90(picture, k)).labels, np.rot90(result.labels, k))
    assert np.array_equal(predictor.predict(picture[::-1]).labels, result.labels[::-1])


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if name.startswith(("gcsa_ocr", "crnn"))))
def test_the_lines_of_a_clean_clone(name: str, tmp_path: Path) -> None:
    predictor = gcsa.load(BASE, name) if name.startswith(f"{BASE}.") else gcsa.load(name)
    for file, expected in EXPECTED[name].items():
        Image.open(IMAGES / file).rotate(90, expand=True).save(tmp_path / file)
        upright, rotated = predictor.predict([IMAGES / file, tmp_path / file])
        assert (upright.text, rotated.text) == (expected["text"],) * 2
        assert upright.confidence == pytest.approx(expected["confidence"], abs=2e-3)
        assert (upright.orientation, rotated.orientation) == (0, 90)


@pytest.mark.parametrize(
    ("name", "data_name", "folder", "least"),
    [("gcsa_tiny.rotmnist", "rotmnist", "rotated_mnist", 0.98), ("gcsa_pooled_small.pcam", "pcam", "pcam", 0.84)],
)
def test_validation_images(name: str, data_name: str, folder: str, least: float) -> None:
    if not (DATA / folder).is_dir():
        pytest.skip(f"needs {folder} under GCSA_DATA")
    model = gcsa.load(name).network.eval()
    data = create_datamodule(data_name, root=str(DATA), batch_size=200)
    data.setup("validate")
    images, labels = next(iter(data.val_dataloader()))
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    assert accuracy >= least


@pytest.mark.slow  # reads some dozen lines in four orientations each: most of a minute
@pytest.mark.parametrize(
    ("name", "script", "most"),
    [
        (BASE, "fr17_roman_print", 0.05),
        ("gcsa_ocr_tiny.french", "fr17_18_gallicorpora", 0.05),
        ("crnn.french", "fr17_18_gallicorpora", 0.05),
        ("gcsa_ocr_tiny.print.la09", "la09_12_caroline_manuscript", 0.28),
    ],
)
def test_validation_lines(name: str, script: str, most: float) -> None:
    if not (DATA / "ocr_lines" / script).is_dir():
        pytest.skip(f"needs ocr_lines/{script} under GCSA_DATA")
    lines = list_lines(DATA / "ocr_lines" / script, ["val"])[::8]
    measured = measure(gcsa.load(name), lines)
    assert measured["cer"] < most
    assert measured["same_when_rotated"] == 1.0
    assert measured["orientation_found"] > 0.9
