"""Small models, and their images, for the tests of folding and of formats."""

from typing import Any

import timm
import torch
from torch import Tensor, nn

from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.testing import randomize

SMALL: dict[str, dict[str, Any]] = {
    "gcsa_tiny": dict(fields=4, depth=1, group="c4"),
    "gcsa_linear_tiny": dict(fields=4, depth=1, group="d2"),
    "gcsa_pooled_small": dict(fields=4, scalar_fields=8, depth=1, stem_fields=(4, 4)),
    "gcsa_hybrid_small": dict(fields=4, scalar_fields=8, conv_depth=1, stem_fields=(4, 4)),
    "gcsa_pyramid_tiny": dict(fields=(4, 4), depths=(1, 1), num_heads=(1, 1), radii=(1, None)),
    "gcnn_tiny": dict(fields=4, depth=1, padding_mode="circular"),
    "gsa_tiny": dict(fields=4, depth=1),
    "performer_tiny": dict(dim=8, depth=1, num_random_features=8),
}


def create(name: str, **kwargs: Any) -> nn.Module:
    return randomize(timm.create_model(name, in_chans=1, num_classes=3, **{**SMALL[name], **kwargs}).eval())


def recognizer(**options: Any) -> CTCRecognizer:
    return CTCRecognizer("ab", height=8, hidden=8, fields=4, depth=1, num_heads=1, **options).eval()


def images(batch: int = 2) -> Tensor:
    return torch.randn(batch, 1, 16, 16)
