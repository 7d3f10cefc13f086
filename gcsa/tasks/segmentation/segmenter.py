"""A network that segments, with what reading its outputs takes: the normalisation of images, and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import group as make_group
from gcsa.images.intensity import normalize, percentiles
from gcsa.models.create import SEGMENTERS, check_options, create_model
from gcsa.models.unet import UNet
from gcsa.tasks.segmentation.stars import Labels, candidates, draw, suppress

SIZES: dict[str, dict[str, Any]] = {
    "gcsa_unet_tiny": dict(fields=(8, 16, 32), depths=(1, 2, 2), heads=(1, 2, 4), radii=(2, 2, 2), stem_fields=(8,)),
    "gcsa_unet_small": dict(fields=(12, 24, 48), depths=(2, 2, 4), heads=(1, 2, 4), radii=(3, 3, 3), stem_fields=(12,)),
}
"""Options of the encoder, by the name of the network."""
ENCODER = "gcsa_pyramid_tiny"
DECODER = ("decoder_fields", "decoder_depth", "resolution")


class Segmenter(nn.Module):
    """Normalised images (B, in_chans, H, W) to (B, outputs, H, W): objects, or classes of pixels.

    For task "instances" channel 0 is the logit of the object map, and then come `rays` distances in pixels; for "masks" the
    channels are the logits of `num_classes` classes, 0 being the background.

    Args:
        name: one of `SIZES`, or "smp_unet_resnet18", the plain U-Net that they are compared with.
        task: "instances" or "masks".
        in_chans: 3 for colour, where grey images have three equal channels, or 1.
        num_classes: of "masks".
        rays: of "instances".
        low, high: percentiles of an image that become 0 and 1.
        threshold: probability of the object map from which a pixel can be the centre of an object.
        overlap: share of the smaller of two objects that they may have in common.
        decoder_fields, decoder_depth, resolution: of `UNet`.
        encoder: a pyramid or another model of gcsa instead of the size's own.
        encoder_options: of the encoder, where they differ from the size's, or from that model's own.

    Raises:
        ValueError: an unknown name, an option of neither, an impossible value.

    Attributes:
        options: all arguments, so that it can be made again.
        multiple, least, margin: of the network, see `UNet`.
    """

    def __init__(
        self,
        name: str = "gcsa_unet_tiny",
        task: str = "instances",
        in_chans: int = 3,
        num_classes: int = 2,
        rays: int = 32,
        low: float = 1.0,
        high: float = 99.8,
        threshold: float = 0.5,
        overlap: float = 0.4,
        encoder: str | None = None,
        decoder_fields: Sequence[int] | None = None,
        decoder_depth: int | None = None,
        resolution: int | None = None,
        **encoder_options: Any,
    ) -> None:
        super().__init__()
        own = dict(task=task, rays=rays, low=low, high=high, threshold=threshold, overlap=overlap)
        own |= dict(encoder=encoder, decoder_fields=decoder_fields, decoder_depth=decoder_depth, resolution=resolution)
        given = {key: value for key, value in encoder_options.items() if value is not None}
        self.options = {key: value for key, value in {**own, **given}.items() if value is not None}
        self.options |= dict(in_chans=in_chans, num_classes=num_classes)
        if name not in SEGMENTERS:
            raise UserError(f"unknown network {str(name)[:60]!r}: choose one of {', '.join(SEGMENTERS)}")
        check_options(self.options)
        if low >= high:
            raise UserError(f"model option low={low} must be below high={high}")
        if task == "masks" and num_classes < 2:
            raise UserError(f"model option num_classes={num_classes} must be 2 or more: the background is a class")
        self.name, self.task, self.in_chans, self.rays = name, task, in_chans, rays
        self.low, self.high, self.threshold, self.overlap = low, high, threshold, overlap
        scalars, count = (1, rays) if task == "instances" else (num_classes, 0)
        self.outputs = scalars + count
        decoder = {key: self.options[key] for key in DECODER if key in self.options}
        if name == "smp_unet_resnet18":
            from gcsa.models.baselines.smp_unet import SMPUNet

            if extra := [*given, *decoder, *(["encoder"] if encoder else [])]:
                raise UserError(f"model={name} does not take {extra[0]}: it is a fixed network")
            self.network: Any = SMPUNet(in_chans, scalars, count)
        else:
            sizes = {} if encoder else {"group": "d4", "separable": True, "layer_scale": 1e-4, **SIZES[name]}
            backbone = create_model(encoder or ENCODER, num_classes=0, in_chans=in_chans, **{**sizes, **given})
            self.network = UNet(backbone, scalars, count, **decoder)
        self.group = make_group(getattr(self.network, "group", "c1"))
        self.multiple: int = self.network.multiple
        self.least: int = self.network.least
        self.margin: int | None = self.network.margin

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) to (B, outputs, H, W); ValueError for sides that `multiple` does not divide."""
        return self.network(x)

    def maps(self, image: Tensor) -> Tensor:
        """Outputs (outputs, H, W) of one normalised image (in_chans, H, W) of any size, which moves to the network's device.

        It is continued by reflection to a size that `multiple` divides, and to no less than `least`, equally far on opposite
        sides. Where an odd number of pixels is missing this cannot be: then both places are read, and the mean is taken, which
        is what keeps turns exact.
        """
        image = image.to(next(self.parameters()).device)
        places = [placements(side, self.multiple, self.least) for side in image.shape[1:]]
        total: Tensor | None = None
        for top, bottom in places[0]:
            for left, right in places[1]:
                out = self(_reflected(image, (left, right, top, bottom))[None])[0]
                out = out[:, top : top + image.shape[1], left : left + image.shape[2]]
                total = out if total is None else total + out
        assert total is not None
        return total / (len(places[0]) * len(places[1]))

    def tensor(self, picture: NDArray[Any]) -> Tensor:
        """A picture (H, W, in_chans) of any depth as a normalised image (in_chans, H, W), on the device and of the precision of
        the model."""
        low, high = percentiles(picture, self.low, self.high)
        return torch.from_numpy(normalize(picture, low, high)).to(next(self.parameters()))

    def set_thresholds(self, threshold: float, overlap: float) -> None:
        """Which pixels can be centres of objects, and how much two may overlap, from now on and in files."""
        self.threshold, self.overlap = threshold, overlap
        self.options |= dict(threshold=threshold, overlap=overlap)

    def labels(self, maps: Tensor) -> Labels:
        """The label map (H, W) of `maps` (outputs, H, W): numbered objects, or classes.

        Of classes that are exactly level, the first is taken.
        """
        if self.task == "masks":
            return maps.argmax(0).cpu().numpy().astype(np.int32)
        found = suppress(candidates(maps, self.threshold), self.overlap, (maps.shape[1], maps.shape[2]))
        return draw(found, (maps.shape[1], maps.shape[2]))

    def segment(self, picture: NDArray[Any]) -> Labels:
        """The label map (H, W) of a picture (H, W, in_chans) as `read_picture` gives it: `gcsa.tasks.segmentation.tiles.segment`, which
        reads it in its `reading_pose`, so that turned pictures have exactly turned label maps. Raises ValueError for another
        shape."""
        from gcsa.images.windows import ArrayImage  # these are made of this class
        from gcsa.tasks.segmentation.tiles import segment

        if picture.ndim != 3 or picture.shape[2] != self.in_chans or not picture.size:
            raise UserError(
                f"a picture of shape {picture.shape} must be (H, W, {self.in_chans}), as gcsa.images.reader.read_picture "
                "gives it"
            )
        return segment(self, ArrayImage(picture)).labels


def placements(side: int, multiple: int, least: int) -> list[tuple[int, int]]:
    """Pixels in front of and behind a side, which make it a multiple, and `least` or more: one way if the number is even, else
    two."""
    missing = -side % multiple if side > least else least - side
    half = missing // 2
    return [(half, half)] if missing % 2 == 0 else [(half, half + 1), (half + 1, half)]


def _reflected(image: Tensor, border: tuple[int, int, int, int]) -> Tensor:
    """(C, H, W) with `border` (left, right, top, bottom), by reflection; repeated where the image is smaller than that."""
    height, width = image.shape[1:]
    left, right, top, bottom = border
    rows = mirrored(torch.arange(-top, height + bottom, device=image.device), height)
    columns = mirrored(torch.arange(-left, width + right, device=image.device), width)
    return image[:, rows][:, :, columns]


def mirrored(places: Tensor, side: int) -> Tensor:
    """Places on a line that goes on beyond 0 and `side` - 1 as in two mirrors."""
    if side == 1:
        return torch.zeros_like(places)
    around = places % (2 * side - 2)
    return torch.minimum(around, 2 * side - 2 - around)
