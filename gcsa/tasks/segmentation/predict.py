"""Label maps of images: a segmenter that reads large images in tiles, in their reading pose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.images.reader import read_picture
from gcsa.images.windows import ArrayImage
from gcsa.tasks.base import Predictor
from gcsa.tasks.segmentation.segmenter import Segmenter
from gcsa.tasks.segmentation.tiles import segment
from gcsa.weights import Weights, fill


class SegmentationPredictor(Predictor):
    """A `Segmenter`."""

    kind = "segmentation"

    def __init__(self, network: Segmenter) -> None:
        super().__init__(network, self._source)

    def _source(self, image: Any) -> ArrayImage:
        """A path, a PIL image, an array (H, W) or (H, W, C) or a tensor (C, H, W) of any bit depth, as a source of windows."""
        channels = self.network.in_chans
        if isinstance(image, str | Path):
            return ArrayImage(read_picture(image, channels))
        picture = image.permute(1, 2, 0).cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
        if picture.ndim == 2:
            picture = np.repeat(picture[..., None], channels, axis=2)
        if picture.ndim != 3 or picture.shape[2] != channels or not picture.size:
            raise UserError(f"an image of shape {picture.shape} must be (height, width, {channels})")
        return ArrayImage(picture)

    def predict(self, images: Any, **options: Any) -> Any:
        """The `Segmented` label map and objects of an image, or a list of these; options of `gcsa.tasks.segmentation.tiles.segment`."""
        if isinstance(images, list | tuple):
            return [self.predict(image, **options) for image in images]
        return segment(self.network, self.preprocess(images), **options)


def make_predictor(weights: Weights, adapter: str | Path | None = None) -> SegmentationPredictor:
    """The segmenter that `weights` describe. Raises ValueError for an unknown network or options, and for an adapter."""
    if adapter is not None:
        raise UserError(f"{weights.source} is a segmenter, which takes no adapter: leave out {adapter}")
    return SegmentationPredictor(fill(lambda: Segmenter(weights.architecture, **weights.options), weights))
