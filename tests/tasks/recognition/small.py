"""A small recogniser and lines that it reads, for the tests of text."""

import torch
from torch import nn
from torch.nn import functional as F

from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.testing import randomize

CHARACTERS = "abcdefgh "


def recognizer(encoder: str = "gcsa_ocr_tiny", **options: object) -> CTCRecognizer:
    """Random weights, spread so that different lines read differently."""
    torch.manual_seed(0)
    if encoder.startswith("gcsa"):
        options = dict(fields=8, depth=1, num_heads=2) | options
    model = randomize(CTCRecognizer(CHARACTERS, encoder, hidden=32, **options)).eval()
    classifier = model.head.classifier
    with torch.no_grad():
        if model.options["recurrent"]:
            nn.init.xavier_uniform_(model.head.recurrent.out.weight)  # which is 0 in a fresh network
        seen: list[torch.Tensor] = []
        hook = classifier.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        model(lines(96, 8))
        hook.remove()
        classifier.weight.normal_().div_(seen[0].std((0, 1)))
        classifier.bias.copy_(-classifier.weight @ seen[0].mean((0, 1)))
    return model


def lines(width: int, count: int = 3) -> torch.Tensor:
    """Blots (count, 1, 40, width), which differ from each other more than noise does."""
    generator = torch.Generator().manual_seed(width)
    return F.interpolate((torch.rand(count, 1, 10, width // 4, generator=generator) > 0.5).float(), scale_factor=4)
