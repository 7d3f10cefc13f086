"""Encoders of text lines: timm models, and the CRNN that they are compared with."""

from __future__ import annotations

from typing import Any

import timm
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers gcsa_ocr_* with timm)


class CRNN(nn.Module):
    """Convolutions and a bidirectional LSTM, the architecture of most line recognisers (Shi et al. 2017, An end-to-end
    trainable neural network for image-based sequence recognition), as an encoder whose maps have one row.

    Images (B, 1, height, W) give features (B, 2 * hidden, 1, W / 4).
    """

    def __init__(self, height: int = 40, channels: int = 20, hidden: int = 72) -> None:
        super().__init__()
        widths = (1, channels, 2 * channels, 4 * channels)
        pools = ((2, 2), (2, 2), (2, 1))
        steps = [
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(pool)
            )
            for before, after, pool in zip(widths[:-1], widths[1:], pools, strict=True)
        ]
        self.convolutions = nn.Sequential(*steps)
        self.recurrent = nn.LSTM(widths[-1] * (height // 8), hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.num_features = 2 * hidden
        self.multiple = 8

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, 1, height, W) to (B, 2 * hidden, 1, W / 4)."""
        x = self.convolutions(x).permute(0, 3, 1, 2).flatten(2)
        return self.recurrent(x)[0].transpose(1, 2).unsqueeze(2)


class NoHead(nn.Identity):
    """In place of a model's head: gives the features back, whatever else the model tells its head."""

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        return x


def create_encoder(name: str, height: int, **options: Any) -> nn.Module:
    """The timm model called `name` without its classifier, for grey images; or "crnn". Options that are None are left
    out. Raises ValueError for an unknown name and for options that it does not take."""
    given = {key: value for key, value in options.items() if value is not None}
    if name != "crnn" and not timm.is_model(name):
        choices = ", ".join(["crnn", *timm.list_models("gcsa_ocr_*")])
        raise ValueError(f"unknown encoder {name!r}: choose one of {choices} or any of timm.list_models()")
    try:
        if name == "crnn":
            return CRNN(height, **given)
        encoder = timm.create_model(name, in_chans=1, num_classes=0, **given)
    except TypeError as error:
        raise ValueError(f"encoder {name!r} does not take {given}: {error}") from error
    # Only features are used, and parameters that get no gradient stop distributed training.
    encoder.head = NoHead()
    return encoder
