"""JPEG, as cameras, scanners and the web store images."""

import io
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int


@dataclass(frozen=True)
class RandomJPEG:
    """Compresses each image of a batch as JPEG. Unlike colours this depends on how an image lies, by its blocks of 8 x 8 pixels.

    Args:
        jpeg: the quality is uniform in [jpeg, 100], of Pillow's scale; 0 compresses nothing.

    Raises:
        ValueError: a quality that is not a whole number from 0 to 100; images that are neither grey nor of three channels.
    """

    jpeg: int = 0

    def __post_init__(self) -> None:
        check_int("augment.jpeg", self.jpeg, 0, 100)

    def check_channels(self, channels: int) -> None:
        """Raises ValueError for images that JPEG cannot hold."""
        if self.jpeg and channels not in (1, 3):
            raise UserError(
                f"augment jpeg={self.jpeg} needs images of one channel or three, not {channels}: set it to 0",
                "augment.jpeg",
            )

    @torch.no_grad()
    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images (B, C, H, W) in 0..1 to images of the same shape, a function of the state of `generator`."""
        if not self.jpeg:
            return images
        self.check_channels(images.shape[1])
        return compressed(images, torch.randint(self.jpeg, 101, (len(images),), generator=generator).tolist())


def compressed(images: Tensor, qualities: Iterable[int]) -> Tensor:
    """Images (B, C, H, W) in 0..1, of one channel or three, each as JPEG of its own quality gives it back."""
    out = []
    for image, quality in zip(images.cpu(), qualities, strict=True):
        file = io.BytesIO()
        pixels = (255 * image.clamp(0, 1)).round().byte().permute(1, 2, 0).squeeze(2).numpy()
        Image.fromarray(pixels).save(file, "JPEG", quality=quality)
        read = torch.from_numpy(np.array(Image.open(file), ndmin=3, copy=True))
        out.append((read if image.shape[0] == 1 else read.permute(2, 0, 1)).float() / 255)
    return torch.stack(out).to(images)
