"""torchvision's RandAugment and random erasing for training images, as functions of a generator."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torchvision.transforms import v2

from gcsa._utils.validation import check_float, check_int


@dataclass(frozen=True)
class RandomPolicy:
    """Random operations on each image of a batch, then a rectangle of some images set to 0.

    Args:
        rand_augment: operations on an image, such as 2 (arXiv:1909.13719); 0 leaves them out. Among them are rotations,
            shears, contrast and colours.
        magnitude: of these operations, from 0 to 30.
        erase: the share of images from which a rectangle is erased (arXiv:1708.04896).

    Raises:
        ValueError: a value out of its range.
    """

    rand_augment: int = 0
    magnitude: int = 9
    erase: float = 0.0

    def __post_init__(self) -> None:
        check_int("augment rand_augment", self.rand_augment, 0, 16)
        check_int("augment magnitude", self.magnitude, 0, 30)
        check_float("augment erase", self.erase, 0, high=1)

    @torch.no_grad()
    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images (B, C, H, W) from 0 to 1 to images of the same shape, a function of the state of `generator`."""
        if not (self.rand_augment or self.erase):
            return images
        operations = v2.Compose(
            [
                v2.ToDtype(torch.uint8, scale=True),
                v2.RandAugment(self.rand_augment, self.magnitude),
                v2.ToDtype(images.dtype, scale=True),
            ]
        )
        erase = v2.RandomErasing(self.erase)
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):  # torchvision draws from the global generator
            torch.manual_seed(seed)
            if self.rand_augment:
                images = torch.stack([operations(image) for image in images])
            return torch.stack([erase(image) for image in images])
