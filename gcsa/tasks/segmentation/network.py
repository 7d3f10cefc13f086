"""The network of a segmenter: a U-Net whose outputs are objects, or classes of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import group as make_group
from gcsa.models.baselines.smp_unet import SMPUNet
from gcsa.models.create import SEGMENTERS, check_options, create_model
from gcsa.models.unet import UNet

SIZES: dict[str, dict[str, Any]] = {
    "gcsa_unet_tiny": dict(
        fields=(8, 16, 32), depths=(1, 2, 2), num_heads=(1, 2, 4), radii=(2, 2, 2), stem_fields=(8,)
    ),
    "gcsa_unet_small": dict(
        fields=(12, 24, 48), depths=(2, 2, 4), num_heads=(1, 2, 4), radii=(3, 3, 3), stem_fields=(12,)
    ),
}
"""Options of the encoder, by the name of the network."""
ENCODER = "gcsa_pyramid_tiny"
DECODER = ("decoder_fields", "decoder_depth", "resolution")


class Segmenter(nn.Module):
    """Normalised images (B, in_chans, H, W) to maps (B, out_chans, H, W).

    With output "instances", channel 0 is the logit of the object map, and `rays` distances in pixels follow (StarDist). With
    "classes", the channels are the logits of `num_classes` classes; class 0 is the background.

    Args:
        name: one of `SEGMENTERS`. "smp_unet_resnet18" is the plain U-Net for comparison.
        output: "instances" or "classes".
        in_chans: 3 for colour, where grey images have three equal channels, or 1.
        num_classes: number of classes, for output "classes".
        rays: number of directions, for output "instances".
        encoder: another model of gcsa as encoder, instead of the size's own.
        decoder_fields, decoder_depth, resolution: as in `UNet`.
        encoder_options: options of the encoder that differ from those of the size, or of `encoder`.

    Raises:
        UserError: an unknown name or option, or an impossible value.

    Attributes:
        options: all arguments but the name, from which the network can be made again.
        size_divisor, min_size, margin: as in `UNet`.
    """

    def __init__(
        self,
        name: str = "gcsa_unet_tiny",
        output: str = "instances",
        in_chans: int = 3,
        num_classes: int = 2,
        rays: int = 32,
        encoder: str | None = None,
        decoder_fields: Sequence[int] | None = None,
        decoder_depth: int | None = None,
        resolution: int | None = None,
        **encoder_options: Any,
    ) -> None:
        super().__init__()
        decoder = dict(decoder_fields=decoder_fields, decoder_depth=decoder_depth, resolution=resolution)
        options = dict(output=output, in_chans=in_chans, num_classes=num_classes, rays=rays, encoder=encoder)
        if name not in SEGMENTERS:
            raise UserError(f"unknown network {str(name)[:60]!r}: choose one of {', '.join(SEGMENTERS)}")
        self.options = check_options({**options, **decoder, **encoder_options})
        if output == "classes" and num_classes < 2:
            raise UserError(f"num_classes={num_classes} must be 2 or more: the background is a class")
        self.name, self.output, self.in_chans, self.num_classes, self.rays = name, output, in_chans, num_classes, rays
        scalars, count = (1, rays) if output == "instances" else (num_classes, 0)
        self.out_chans = scalars + count
        if name == "smp_unet_resnet18":
            if extra := [key for key in self.options if key not in options or key == "encoder"]:
                raise UserError(f"model={name} does not take {extra[0]}: it is a fixed network")
            self.network: Any = SMPUNet(in_chans, scalars, count)
        else:
            sizes = {} if encoder else {"group": "d4", "separable": True, "layer_scale": 1e-4, **SIZES[name]}
            sizes |= {key: value for key, value in encoder_options.items() if value is not None}
            backbone = create_model(encoder or ENCODER, num_classes=0, in_chans=in_chans, **sizes)
            self.network = UNet(
                backbone, scalars, count, **{key: self.options[key] for key in DECODER if key in self.options}
            )
        self.group = make_group(getattr(self.network, "group", "c1"))
        self.size_divisor: int = self.network.size_divisor
        self.min_size: int = self.network.min_size
        self.margin: int | None = self.network.margin

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, out_chans, H, W). Raises UserError for sides that `size_divisor` does not divide."""
        return self.network(x)
