"""TIAToolbox: `DeepFeatureExtractor(TIAToolboxModel("gcsa_pooled_small.pcam"))` embeds slides and patches.

Its own way to models of timm is `Sequential(*children[:-1])`: for ours that leaves out the pooling together with the classifier,
and what comes out, a map that turns with the image, is taken for an embedding without a word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiatoolbox.models.models_abc import ModelABC
from torch import Tensor, nn

from gcsa.tasks.classification.embedding import load_embedder


class TIAToolboxModel(ModelABC):
    """The embedder of a folder of weights, or of the name of published ones, as TIAToolbox's engines run models.

    Patches of any size are resized to the `size` of the weights; whether they show tissue as the weights know it depends on the
    resolution at which the engine reads the slide. Raises what `load_embedder` does.
    """

    def __init__(self, source: str | Path) -> None:
        super().__init__()
        self.embedder = load_embedder(source)
        self.size = self.embedder.prepare.size
        self.preproc_func = self._prepared

    def _prepared(self, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """uint8 (H, W, 3) to float32 (size, size, 3)."""
        return self.embedder.prepare(image).permute(1, 2, 0).numpy()

    def forward(self, images: Tensor) -> Tensor:
        """Prepared images (B, 3, size, size) to features (B, D)."""
        return self.embedder(images)

    @staticmethod
    def infer_batch(model: nn.Module, batch_data: Any, *, device: str = "cpu") -> list[np.ndarray[Any, Any]]:
        """Prepared images (B, size, size, 3) to one array of features (B, D)."""
        images = torch.as_tensor(batch_data).to(device, torch.float32).permute(0, 3, 1, 2)
        with torch.inference_mode():
            return [model.eval()(images).cpu().numpy()]
