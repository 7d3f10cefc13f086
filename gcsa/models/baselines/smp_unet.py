"""The plain U-Net that people start with: that of segmentation_models_pytorch on a ResNet-18, with no group."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gcsa._utils.errors import MissingExtraError
from gcsa.layers.outputs import RAY_SCALE


class SMPUNet(nn.Module):
    """Images (B, in_chans, H, W) to `scalars` + `rays` numbers a pixel, as those of `gcsa.models.unet.UNet`, from random weights.

    Raises ImportError without segmentation_models_pytorch, and ValueError for sides that are not multiples of 32.
    """

    size_divisor = min_size = 32
    margin = None

    def __init__(self, in_chans: int, scalars: int, rays: int = 0) -> None:
        super().__init__()
        try:
            import segmentation_models_pytorch as smp
        except ImportError as error:
            raise MissingExtraError(
                "smp_unet_resnet18 needs segmentation_models_pytorch: pip install gcsa-vit[baselines]", "smp.missing"
            ) from error
        self.unet = smp.Unet("resnet18", encoder_weights=None, in_channels=in_chans, classes=scalars + rays)
        self.scalars = scalars

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, scalars + rays, H, W)."""
        out = self.unet(x)
        return torch.cat([out[:, : self.scalars], RAY_SCALE * out[:, self.scalars :]], 1)
