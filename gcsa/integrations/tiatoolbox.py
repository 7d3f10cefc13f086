"""TIAToolbox: `DeepFeatureExtractor(TIAToolboxModel("gcsa_pooled_small.pcam"))` embeds slides and patches.

TIAToolbox itself makes `Sequential(*children[:-1])` of a timm model. For ours that leaves out the pooling together with the
classifier: it takes a map, which rotates with the image, for an embedding, and reports no error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiatoolbox.models.models_abc import ModelABC
from torch import Tensor, nn

from gcsa.integrations import load_classifier


class TIAToolboxModel(ModelABC):
    """The features of a classifier, as TIAToolbox's engines run models.

    source: as for `gcsa.load`. Patches of any size are resized to the `size` of the weights. Choose the resolution at which
    the engine reads the slide so that they show tissue at the scale of the weights. Raises what `load_classifier` does.
    """

    def __init__(self, source: str | Path) -> None:
        super().__init__()
        classifier = load_classifier(source).fold()
        self.embedding, self.preprocess = classifier.embedding, classifier.preprocess
        self.size = self.preprocess.size
        self.preproc_func = self._prepared

    def _prepared(self, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """uint8 (H, W, 3) to float32 (size, size, 3)."""
        return self.preprocess(image).permute(1, 2, 0).numpy()

    def forward(self, images: Tensor) -> Tensor:
        """Prepared images (B, 3, size, size) to features (B, D)."""
        return self.embedding(images)

    @staticmethod
    def infer_batch(model: nn.Module, batch_data: Any, *, device: str = "cpu") -> list[np.ndarray[Any, Any]]:
        """Prepared images (B, size, size, 3) to one array of features (B, D)."""
        images = torch.as_tensor(batch_data).to(device, torch.float32).permute(0, 3, 1, 2)
        with torch.inference_mode():
            return [model.eval()(images).cpu().numpy()]
