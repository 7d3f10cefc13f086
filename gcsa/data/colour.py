"""Random brightness, contrast, saturation and stain of whole batches of images."""

from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float
from gcsa.images.pixels import GREY

STAINS = ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11), (0.27, 0.57, 0.78))
"""Absorption of red, green and blue by haematoxylin, eosin and diaminobenzidine (Ruifrok & Johnston 2001, Quantification of
histochemical staining by color deconvolution, PMID 11531144)."""
DARKEST = 1e-3
"""No light at all has no finite optical density."""


@dataclass(frozen=True)
class RandomColour:
    """Changes the colours of each image of a batch, all its pixels alike, so that it commutes with every rotation.

    Args:
        brightness: multiply by a factor uniform in [1 - brightness, 1 + brightness].
        contrast: the same factor on the distance of a pixel to the image's mean.
        saturation: the same on the distance of a colour to its grey; of one channel it changes nothing.
        stain: of histology, in colour: multiply the amount of each stain by a factor uniform in [1 - stain, 1 + stain],
            and add an amount uniform in [-stain, stain] (Tellez et al. 2019, arXiv:1902.06543, there 0.05 is "light" and
            0.2 "strong").

    Raises:
        ValueError: an amount that is not a number from 0 to below 1; `stain` of images that are not of three channels.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    stain: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_float(f"augment.{field.name}", getattr(self, field.name), 0, below=1)

    def check_channels(self, channels: int) -> None:
        """Raises ValueError for `stain` of images that are not in colour."""
        if self.stain and channels != 3:
            raise UserError(
                f"augment stain={self.stain} needs images of three channels, not {channels}: set it to 0",
                "augment.stain",
            )

    @torch.no_grad()
    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Images (B, C, H, W) in 0..1 to images of the same shape in 0..1, a function of the state of `generator`."""

        def uniform(amount: float, channels: int = 1) -> Tensor:
            drawn = torch.empty(len(images), channels, 1, 1).uniform_(-amount, amount, generator=generator)
            return drawn.to(images.device)

        # Every number is drawn whether or not it is used, so that switching one option leaves the others as they are.
        brighter, stronger, richer = (1 + uniform(a) for a in (self.brightness, self.contrast, self.saturation))
        factor, offset = 1 + uniform(self.stain, 3), uniform(self.stain, 3)

        self.check_channels(images.shape[1])
        if self.stain:
            images = stained(images, factor, offset)
        if self.brightness:
            images = images * brighter
        if self.contrast:
            mean = images.mean((1, 2, 3), keepdim=True)
            images = mean + stronger * (images - mean)
        if self.saturation and images.shape[1] == 3:
            grey = (images * images.new_tensor(GREY).view(3, 1, 1)).sum(1, keepdim=True)
            images = grey + richer * (images - grey)
        return images.clamp(0, 1) if self.stain or self.brightness or self.contrast or self.saturation else images


def stained(images: Tensor, factor: Tensor, offset: Tensor) -> Tensor:
    """Images (B, 3, H, W) with the amount of each of the three `STAINS` times `factor` plus `offset`, both (B, 3, 1, 1)."""
    absorbed = images.new_tensor(STAINS)
    absorbed = absorbed / absorbed.norm(dim=1, keepdim=True)
    density = -images.clamp(DARKEST, 1).log10()
    amounts = torch.einsum("brhw,rs->bshw", density, torch.linalg.inv(absorbed))
    density = torch.einsum("bshw,sr->brhw", amounts * factor + offset, absorbed)
    return 10**-density
