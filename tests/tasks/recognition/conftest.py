"""What several tests of text read: a small recogniser, and lines."""

from pathlib import Path

import pytest
from torchvision.transforms.functional import to_pil_image

from tests.tasks.recognition.small import lines, recognizer


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random ones, which read nonsense."""
    return recognizer().save_pretrained(tmp_path_factory.mktemp("model") / "weights")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven lines of three widths, narrow and wide in turn."""
    folder = tmp_path_factory.mktemp("lines")
    images = [image for three in zip(*(lines(width, 3) for width in (96, 160, 120)), strict=True) for image in three]
    for i, image in enumerate(images[:7]):
        to_pil_image(1 - image).save(folder / f"{i}.png")
    return folder
