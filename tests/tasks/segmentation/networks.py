"""Small segmenters that find something, for the tests beside this file."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcsa._utils.arrays import Array
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation import SegmentationPredictor, Segmenter
from gcsa.tasks.segmentation.tiles import Tile, tile_maps
from gcsa.testing import randomize

TINY: dict[str, Any] = dict(fields=[2, 4], depths=[1, 1], num_heads=[1, 2], radii=[1, 1], stem_fields=[2], rays=8)


def untrained(dtype: torch.dtype = torch.float64, **options: Any) -> SegmentationPredictor:
    """A network whose logits lie about 0, so that it finds objects and every class, and whose attention counts."""
    predictor = SegmentationPredictor.create(
        "gcsa_unet_tiny", **{**TINY, "layer_scale": 1.0, "prob_thresh": 0.45, **options}
    )
    network = randomize(predictor.network).to(dtype).eval()
    scalars = 1 if network.output == "instances" else network.num_classes  # type: ignore[union-attr]
    out: Any = network.network.head.out  # type: ignore[union-attr]
    with torch.no_grad():
        logits = network(torch.rand(1, predictor.network.in_chans, 64, 64, dtype=dtype))[:, :scalars]
        out.bias[:scalars] -= logits.mean((0, 2, 3))
    return predictor


def picture(height: int, width: int, channels: int = 3, dtype: Any = np.uint8) -> Array:
    return uneven((height, width, channels)).astype(dtype)


def uneven(shape: tuple[int, ...], most: int = 256, dtype: Any = np.uint8, axes: tuple[int, int] = (0, 1)) -> Array:
    """Random values below `most`, in squares that are more bright or less along `axes`: a picture of noise alone has no objects."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 3 * most // 4, [-(-side // 5) if i in axes else side for i, side in enumerate(shape)])
    for axis in axes:
        coarse = coarse.repeat(5, axis).take(range(shape[axis]), axis)
    return (coarse + rng.integers(0, most // 4, shape)).astype(dtype)


@torch.no_grad()
def whole_maps(network: Segmenter, image: Array) -> Tensor:
    """The maps of an image (H, W, C) of any size, scaled from 0..255 to 0..1."""
    return tile_maps(network, ArrayImage(image), Tile(0, 0, *image.shape[:2]), (0.0, 255.0))
