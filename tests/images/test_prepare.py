"""`Prepare`: an image of any size becomes a square, and a rotated image the rotated square."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import normalize, resize, to_tensor

from gcsa._utils.published import published
from gcsa.images.prepare import PADS, Prepare
from gcsa.tasks.classification.data.image_folder import ImageFiles
from tests.errors import raises
from tests.integrations.pictures import patches, poses

PREPARE = Prepare(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("shape", [(32, 32), (67, 50), (33, 32), (31, 50), (20, 21), (96, 95)])
def test_a_rotated_file_is_a_rotated_input(shape: tuple[int, int], pad: str | None, tmp_path: Any) -> None:
    """Bit for bit, as training, gcsa evaluate and gcsa embed read it."""
    prepare = Prepare(32, PREPARE.mean, PREPARE.std, pad)
    files = [tmp_path / f"{number}.png" for number in range(8)]
    for file, pose in zip(files, poses(patches(1)[0, : shape[0], : shape[1]]), strict=True):
        Image.fromarray(pose).save(file)
    images = ImageFiles(files, prepare).read_all()
    upright = images[0].permute(1, 2, 0).numpy()
    for image, file, expected in zip(images, files, poses(upright), strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)
        assert torch.equal(prepare(file), image.float() / 255 * 2 - 1)
    assert not torch.equal(images[1], images[0])


def test_normalised_as_the_weights_say() -> None:
    """By torchvision's own functions."""
    config = json.loads((published("gcsa_pooled_small.pcam") / "config.json").read_text())["pretrained_cfg"]  # type: ignore[operator]
    prepare = Prepare.from_weights("weights", config)
    (pixels,) = patches(1)
    expected = normalize(to_tensor(Image.fromarray(pixels)), config["mean"], config["std"])
    assert torch.allclose(prepare(pixels), expected, atol=1e-6)


@pytest.mark.parametrize(("pad", "value"), [("white", 255), ("black", 0)])
def test_filled_up_to_a_square(pad: str, value: int) -> None:
    pixels = patches(1)[0, :32, :20]
    square = Prepare(32, PREPARE.mean, PREPARE.std, pad).square(pixels)
    assert torch.equal(square[:, :, 6:26], torch.from_numpy(pixels.copy()).permute(2, 0, 1))
    assert (square[:, :, :6] == value).all()
    assert (square[:, :, 26:] == value).all()


@pytest.mark.parametrize("shape", [(50, 50), (50, 72), (20, 20)])
def test_resized_as_others_do(shape: tuple[int, int]) -> None:
    pixels = patches(1)[0, : shape[0], : shape[1]]
    side = min(shape)
    top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
    square = torch.from_numpy(pixels[top : top + side, left : left + side].copy()).permute(2, 0, 1).double()
    expected = resize(square, [32, 32], InterpolationMode.BICUBIC, antialias=True).clamp(0, 255)
    found = PREPARE.square(pixels)
    assert (found.shape, found.dtype) == ((3, 32, 32), torch.uint8)
    assert (found - expected).abs().max() <= 0.5 + 1e-5


def test_every_way_to_give_an_image(tmp_path: Any) -> None:
    (pixels,) = patches(1)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    expected = PREPARE(pixels)
    for image in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(pixels), tensor, tensor / 255):
        assert torch.equal(PREPARE(image), expected)
    grey, levels = Prepare(32, (0.5,), (0.5,)), np.asarray(Image.fromarray(pixels).convert("L"))
    for image in (pixels, levels, levels[..., None], torch.from_numpy(levels.copy())):
        assert torch.equal(grey(image), grey(Image.fromarray(pixels)))
    assert PREPARE(levels).shape == (3, 32, 32)
    deep = Image.fromarray(levels.astype(np.uint16) * 257)
    assert torch.equal(grey(deep), grey(levels)), "16 bits"
    assert pickle.loads(pickle.dumps(PREPARE)) == PREPARE


@pytest.mark.parametrize(
    ("image", "key"),
    [
        (np.zeros((4,), np.uint8), "image.array"),
        (np.full((4, 4, 3), 255.0), "image.range"),
        (np.zeros((4, 4, 3), np.uint16), "image.array"),
        (np.zeros((4, 4, 4), np.uint8), "image.array"),
        (torch.full((3, 4, 4), 2.0), "image.range"),
        (torch.full((3, 4, 4), float("nan")), "image.range"),
        (7, "image.type"),
        ("nowhere.png", "image.unreadable"),
    ],
)
def test_what_is_no_image(image: Any, key: str) -> None:
    with raises(key):
        PREPARE(image)
