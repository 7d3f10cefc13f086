"""Class probabilities of images: a classifier with the preprocessing that its weights name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.images.prepare import Prepare
from gcsa.images.reader import read_image
from gcsa.models.create import create_model
from gcsa.tasks.base import Predictor, merge_adapter
from gcsa.weights import Weights, fill
from gcsa.weights.files import BORDER


class ClassificationPredictor(Predictor):
    """A timm model. `label_names` are those of its classes, "0", "1", ... where the weights have none."""

    kind = "classification"

    def __init__(self, network: Any, weights: Weights) -> None:
        super().__init__(network, self._prepared)
        self.weights = weights
        self.label_names = weights.preprocessing.get("label_names") or tuple(map(str, range(network.num_classes)))

    @property
    def prepare(self) -> Prepare:
        """The preprocessing. Raises ValueError for weights that do not say how images are normalised, as an older .ckpt."""
        told, source = self.weights.preprocessing, self.weights.source
        if missing := [key for key in ("input_size", "mean", "std") if key not in told]:
            raise UserError(
                f"{source} does not say how images are made ready (no {', '.join(missing)}): name the folder of weights "
                "that train.py wrote beside its checkpoints"
            )
        (channels, height, width), mean, std = told["input_size"], told["mean"], told["std"]
        if height != width:
            raise UserError(f"{source} is for images of {height} x {width}: name weights for square images")
        if not channels == len(mean) == len(std):
            raise UserError(
                f"{source} has {channels} channels, but {len(mean)} means and {len(std)} deviations of them"
            )
        return Prepare(height, mean, std, told.get("pad"))

    def _prepared(self, image: Any) -> Tensor:
        """A path, a PIL image, an array (H, W) or (H, W, C), uint8, or a tensor (C, H, W), uint8, to float32 (C, size, size)."""
        prepare = self.prepare
        if isinstance(image, str | Path):
            image = read_image(image, len(prepare.mean))
        if isinstance(image, Tensor):
            image = image.permute(1, 2, 0).cpu().numpy()
        if isinstance(image, np.ndarray) and image.ndim == 2:
            image = image[..., None]
        return prepare(image)

    @torch.inference_mode()
    def predict(self, images: Any, **options: Any) -> Any:
        """The probability of each class by its name, or a list of these for a list of images."""
        if not isinstance(images, list | tuple):
            return self.predict([images])[0]
        batch = torch.stack([self.preprocess(image) for image in images])
        probabilities = self.network(batch.to(next(self.network.parameters()))).softmax(-1)
        return [dict(zip(self.label_names, row, strict=True)) for row in probabilities.tolist()]


def make_predictor(weights: Weights, adapter: str | Path | None = None) -> ClassificationPredictor:
    """The classifier that `weights` describe. Raises ValueError for an unknown model or options that it does not take."""
    network: Any = fill(lambda: create_model(weights.architecture, **weights.options), weights)
    preprocessing = dict(weights.preprocessing)
    if preprocessing.pop("pad", None):
        preprocessing |= BORDER
    vars(network)["pretrained_cfg"] = {**vars(network).get("pretrained_cfg", {}), **preprocessing}
    return ClassificationPredictor(network if adapter is None else merge_adapter(network, adapter), weights)
