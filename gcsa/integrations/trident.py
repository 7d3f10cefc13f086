"""TRIDENT (github.com/mahmoodlab/TRIDENT) cuts slides into patches and embeds them:

    CustomInferenceEncoder("gcsa", *encoder("gcsa_pooled_small.pcam"))

TRIDENT itself is not imported.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from gcsa.images.prepare import Prepare
from gcsa.integrations import load_classifier


def encoder(source: str | Path) -> tuple[nn.Module, Prepare, torch.dtype]:
    """The arguments of `CustomInferenceEncoder` after the name: the model, its transforms, and its precision.

    The precision is float32: in half precision, the features of a rotated patch differ in the third digit. source: as for
    `gcsa.load`. Raises what `load_classifier` does.
    """
    classifier = load_classifier(source).fold()
    return classifier.embedding, classifier.preprocess, torch.float32
