"""The network of a segmenter: a U-Net whose outputs are objects, or classes of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.options import Options, Range, Width, Word, explain
from gcsa.groups import group as make_group
from gcsa.models.baselines.smp_unet import SMPUNet
from gcsa.models.create import create_model
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
SEGMENTERS = (*SIZES, "smp_unet_resnet18")
"""The names of the networks; the last one is a plain baseline."""
Depth = Annotated[int, Range(1, 64)]
ENCODER = "gcsa_pyramid_tiny"
DECODER = ("decoder_fields", "decoder_depth", "resolution")


@dataclass(frozen=True, kw_only=True)
class SegmenterOptions(Options):
    """Options of a segmenter besides those of its encoder."""

    output: Annotated[
        Literal["instances", "classes"], "instances: numbered objects; classes: a class for each pixel"
    ] = "instances"
    in_chans: Annotated[int, Range(1, 1024), "3 for colour, where grey images have three equal channels, or 1"] = 3
    num_classes: Annotated[int, Range(0, 1_000_000), "of output=classes"] = 2
    rays: Annotated[int, Range(3, 256), "of output=instances: directions in which an object's border is measured"] = 32
    encoder: Annotated[Word | None, "another model of gcsa as encoder, instead of the size's own"] = None
    decoder_fields: Annotated[Sequence[Width] | None, "regular fields of the decoder, fine to coarse"] = None
    decoder_depth: Annotated[Depth | None, "residual blocks at each resolution of the decoder"] = None
    resolution: Annotated[Depth | None, "pixels a position of the decoder's finest map"] = None


class Segmenter(nn.Module):
    """Normalised images (B, in_chans, H, W) to maps (B, out_chans, H, W).

    With output "instances", channel 0 is the logit of the object map, and `rays` distances in pixels follow (StarDist). With
    "classes", the channels are the logits of `num_classes` classes; class 0 is the background.

    Args:
        name: one of `SEGMENTERS`. "smp_unet_resnet18" is the plain U-Net for comparison.
        options: those of `SegmenterOptions`, and those of the encoder that differ from the size's; None keeps a default.

    Raises:
        UserError: an unknown name or option, or an impossible value.

    Attributes:
        options: all arguments but the name, from which the network can be made again.
        size_divisor, min_size, margin: as in `UNet`.
    """

    def __init__(self, name: str = "gcsa_unet_tiny", **options: Any) -> None:
        super().__init__()
        if name not in SEGMENTERS:
            raise UserError(f"unknown network {str(name)[:60]!r}: choose one of {', '.join(SEGMENTERS)}", "network")
        of_encoder = {key: value for key, value in options.items() if value is not None}
        o = SegmenterOptions(**{key: of_encoder.pop(key) for key in explain(SegmenterOptions) if key in of_encoder})
        own = {key: value for key, value in vars(o).items() if value is not None}
        self.options = {**own, **of_encoder}
        if o.output == "classes" and o.num_classes < 2:
            raise UserError(f"num_classes={o.num_classes} must be 2 or more: the background is a class", "num_classes")
        self.name, self.output, self.in_chans = name, o.output, o.in_chans
        self.num_classes, self.rays = o.num_classes, o.rays
        scalars, count = (1, o.rays) if o.output == "instances" else (o.num_classes, 0)
        self.out_chans = scalars + count
        decoder = {key: own[key] for key in DECODER if key in own}
        if name == "smp_unet_resnet18":
            for key in (*of_encoder, *decoder, *(["encoder"] if o.encoder else [])):
                raise UserError(f"model={name} does not take {key}: it is a fixed network", "model.option")
            self.network: Any = SMPUNet(o.in_chans, scalars, count)
        else:
            sizes = {} if o.encoder else {"group": "d4", "separable": True, "layer_scale": 1e-4, **SIZES[name]}
            backbone = create_model(o.encoder or ENCODER, num_classes=0, in_chans=o.in_chans, **{**sizes, **of_encoder})
            self.network = UNet(backbone, scalars, count, **decoder)
        self.group = make_group(getattr(self.network, "group", "c1"))
        self.size_divisor: int = self.network.size_divisor
        self.min_size: int = self.network.min_size
        self.margin: int | None = self.network.margin

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, out_chans, H, W). Raises UserError for sides that `size_divisor` does not divide."""
        return self.network(x)
