"""Embedders: the same features for every pose of a picture, made ready as the weights say."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import normalize, resize, to_tensor

import gcsa
from gcsa._utils.published import published
from gcsa.integrations import Embedder, Prepare, load_embedder
from gcsa.models.create import create_model
from gcsa.testing import randomize
from tests.integrations.pictures import largest_change, patches, poses

WEIGHTS = "gcsa_pooled_small.pcam"
PREPARE = Prepare(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(WEIGHTS)


def test_what_the_classifier_decides_by(embedder: Embedder) -> None:
    model: Any = gcsa.load(WEIGHTS).network
    x = torch.stack([embedder.prepare(pixels) for pixels in patches(2)])
    found = embedder(x)
    assert found.shape == (2, embedder.features) == (2, model.head_hidden_size)
    assert torch.allclose(model.get_classifier()(found), model(x), atol=1e-4)


def test_normalised_as_the_weights_say(embedder: Embedder) -> None:
    """By torchvision's own functions, and not by ImageNet's numbers."""
    config = json.loads((published(WEIGHTS) / "config.json").read_text())["pretrained_cfg"]  # type: ignore[operator]
    (pixels,) = patches(1)
    expected = normalize(to_tensor(Image.fromarray(pixels)), config["mean"], config["std"])
    assert torch.allclose(embedder.prepare(pixels), expected, atol=1e-6)
    assert torch.equal(embedder.prepare(Image.fromarray(pixels)), embedder.prepare(pixels))


@pytest.mark.parametrize("cut", [(96, 96), (95, 80), (81, 96), (60, 61), (40, 39)])
def test_invariant(embedder: Embedder, cut: tuple[int, int]) -> None:
    """Cropped and resized too, whatever margins there are."""
    assert largest_change(embedder, embedder.prepare, patches()[:, : cut[0], : cut[1]]) < 1e-5


def test_pillow_resizes_otherwise_when_the_picture_turns(embedder: Embedder) -> None:
    """The negative control: why `Prepare` does not resize by Pillow."""

    class ByPillow(Prepare):
        def __call__(self, image: Any) -> torch.Tensor:
            return super().__call__(Image.fromarray(image).resize((self.size, self.size)))

    prepare = embedder.prepare
    by_pillow = ByPillow(prepare.size, prepare.mean, prepare.std)
    assert largest_change(embedder, by_pillow, patches()[:, 8:-8, 8:-8]) > 1e-4


@pytest.mark.parametrize(("pad", "value"), [("white", 1.0), ("black", -1.0)])
def test_filled_up_to_a_square(pad: str, value: float) -> None:
    prepare = Prepare(32, PREPARE.mean, PREPARE.std, pad)
    pixels = patches(1)[0, :32, :20]
    found = prepare(pixels)
    assert torch.equal(found[:, :, 6:26], PREPARE(np.pad(pixels, ((0, 0), (6, 6), (0, 0))))[:, :, 6:26])
    assert (found[:, :, :6] == value).all()
    assert (found[:, :, 26:] == value).all()
    for shape in ((32, 20), (24, 32), (31, 50)):
        picture = patches(1)[0, : shape[0], : shape[1]]
        upright = prepare(picture).permute(1, 2, 0).numpy()
        for turned, expected in zip(poses(picture), poses(upright), strict=True):
            assert np.allclose(prepare(turned).permute(1, 2, 0).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(50, 50), (50, 71), (72, 49), (20, 20)])
def test_resized_as_others_do(shape: tuple[int, int]) -> None:
    pixels = patches(1)[0, : shape[0], : shape[1]]
    side = min(shape)
    top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
    square = torch.from_numpy(pixels[top : top + side, left : left + side].copy()).permute(2, 0, 1) / 255
    expected = resize(square, [32, 32], InterpolationMode.BICUBIC, antialias=True).clamp(0, 1) * 2 - 1
    found = PREPARE(pixels)
    assert found.shape == (3, 32, 32)
    assert found.dtype == torch.float32
    # One pixel more where margins cannot be equal.
    assert (found - expected).abs().mean() < (1e-5 if (max(shape) - side) % 2 == 0 else 0.2)


def test_every_pose_of_a_prepared_picture_is_a_pose() -> None:
    (pixels,) = patches(1)
    upright, *rest = (PREPARE(pose) for pose in poses(pixels[:67, :50]))
    for place, found in enumerate(rest, 1):
        moved = upright.flip(2) if place >= 4 else upright
        assert torch.allclose(found, moved.rot90(place % 4, (1, 2)), atol=1e-6)


def test_grey() -> None:
    grey = Prepare(32, (0.5,), (0.5,))
    picture = Image.fromarray(patches(1)[0]).convert("L")
    assert torch.equal(grey(picture), grey(np.asarray(picture)[:, :, None]))


def test_other_processes_can_have_it() -> None:
    assert pickle.loads(pickle.dumps(PREPARE)) == PREPARE


@pytest.mark.parametrize(
    ("pixels", "named"),
    [
        (np.zeros((4, 4), np.uint8), r"uint8 of shape \(height, width, 3\), not uint8 of \(4, 4\)"),
        (np.zeros((4, 4, 3)), "not float64"),
        (np.zeros((4, 4, 4), np.uint8), r"of \(4, 4, 4\)"),
        (Image.new("I;16", (4, 4)), "mode RGB or L, not I;16: read it by gcsa.images.reader.read_image"),
    ],
)
def test_other_pixels(pixels: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        PREPARE(pixels)


def test_models_of_timm() -> None:
    model = create_model("test_efficientnet", num_classes=5)
    assert Embedder(model, PREPARE)(torch.randn(2, 3, 32, 32)).shape == (2, model.head_hidden_size)


def test_models_without_a_row_of_numbers() -> None:
    sizes: dict[str, Any] = dict(fields=4, scalar_fields=8, depth=1, stem_fields=(4, 4))
    unpooled = timm.create_model("gcsa_pooled_small", num_classes=0, global_pool="", **sizes)
    with pytest.raises(ValueError, match=r"gives a map of \(8, 4, 4\) and no row of numbers"):
        Embedder(unpooled, PREPARE)
    with pytest.raises(ValueError, match=r"does not take images of \(1, 3, 32, 32\)"):
        Embedder(randomize(timm.create_model("gcsa_pooled_small", in_chans=1, **sizes)), PREPARE)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mean": None}, r"does not say how images are made ready \(no mean\)"),
        ({"input_size": [3, 96, 104]}, "is for images of 96 x 104: name weights for square images"),
        ({"std": [0.2]}, "has 3 channels, but 3 means and 1 deviations"),
    ],
)
def test_configs_that_do_not_do(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    folder = shutil.copytree(published(WEIGHTS), tmp_path / "weights")  # type: ignore[arg-type]
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=named):
        load_embedder(folder)


def test_weights_of_something_else() -> None:
    with pytest.raises(ValueError, match="reads text lines"):
        load_embedder("gcsa_ocr_tiny.fr17")
