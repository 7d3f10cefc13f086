"""Embeddings: the numbers that a classifier decides by, of images made ready as the weights themselves say.

Invariance is that of the whole way from the pixels, so images are cropped and resized without preferring a side: margins on
opposite sides are equal, and the resizing is in float64, for Pillow's rounds to 8 bits between its two passes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError, one_line
from gcsa.images.prepare import Prepare
from gcsa.models.folding import fold
from gcsa.tasks import load


class Embedder(nn.Module):
    """A classifier without its last layer, in eval mode: normalised images (B, C, H, W) to features (B, `features`).

    Raises ValueError for a model whose features are not one row of numbers for an image, such as one of the unpooled map.

    Attributes:
        prepare: makes a picture ready for the model.
        features: how many numbers an image gives.
    """

    def __init__(self, model: nn.Module, prepare: Prepare) -> None:
        super().__init__()
        self.model, self.prepare = model.eval(), prepare
        parameter = next(model.parameters())
        with torch.no_grad():
            blank = torch.zeros(1, len(prepare.mean), prepare.size, prepare.size, device=parameter.device)
            try:
                found = self(blank)
            except (RuntimeError, AssertionError) as error:
                raise UserError(f"the model does not take images of {tuple(blank.shape)}: {one_line(error)}") from error
        if found.ndim != 2:
            raise UserError(f"the model gives a map of {tuple(found.shape[1:])} and no row of numbers: pool it")
        self.features = found.shape[1]

    def forward(self, images: Tensor) -> Tensor:
        return self.model.forward_head(self.model.forward_features(images), pre_logits=True)  # type: ignore[operator]


def load_embedder(source: str | Path) -> Embedder:
    """The embedder of a folder of weights or of the name of published ones, folded, on the CPU.

    Raises what `gcsa.weights.read` does, and ValueError for weights that do not classify, do not say how images are to be
    normalised, as a .ckpt does not, or are not for square images.
    """
    predictor = load(source, task="classification")
    return Embedder(fold(predictor.network), predictor.prepare)  # type: ignore[attr-defined]
