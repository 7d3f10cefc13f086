"""TRIDENT (github.com/mahmoodlab/TRIDENT), which cuts slides into patches and embeds them:

    CustomInferenceEncoder("gcsa", *encoder("gcsa_pooled_small.pcam"))

TRIDENT itself is not imported.
"""

from __future__ import annotations

from pathlib import Path

import torch

from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.embedding import Embedder, load_embedder


def encoder(source: str | Path) -> tuple[Embedder, Prepare, torch.dtype]:
    """What `CustomInferenceEncoder` takes behind a name: the model, what makes a patch ready, and the precision.

    That is float32: in half precision, features of a turned patch differ in the third digit. Raises what `load_embedder` does.
    """
    embedder = load_embedder(source)
    return embedder, embedder.prepare, torch.float32
