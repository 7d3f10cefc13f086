"""Encoders of text lines: timm models, and the CRNN that they are compared with."""

from __future__ import annotations

from typing import Any

import timm
from torch import nn

from gcsa._utils.errors import UserError
from gcsa.layers.pooling import NoHead
from gcsa.models.backbone import Backbone
from gcsa.models.baselines.crnn import CRNN
from gcsa.models.create import check_options, create_model

OF_HEADS = ("centred", "global_pool", "head_fields")
"""Options of the classifier's head, which an encoder has not."""


def create_encoder(name: str, height: int, **options: Any) -> nn.Module:
    """The model that timm calls `name` without its classifier, for grey images; or "crnn". Options that are None are left
    out. Raises ValueError for an unknown name and for options that it does not take."""
    unused = [option for option in OF_HEADS if options.get(option) is not None]
    if unused:
        raise UserError(f"an encoder of text lines has no classifier, and does not use {', '.join(unused)}: leave out")
    if name != "crnn":
        if not timm.is_model(str(name)):
            choices = ", ".join(["crnn", *timm.list_models("gcsa_ocr_*")])
            raise UserError(f"unknown encoder {str(name)[:60]!r}: choose one of {choices} or any of timm.list_models()")
        encoder = create_model(name, in_chans=1, num_classes=0, **options)
        if isinstance(encoder, Backbone) and encoder.feature_kind != "regular":
            raise UserError(
                f"encoder {name!r} has scalar fields, which do not tell which way up a line is: set scalar_fields=0"
            )
        encoder.head = NoHead()
        return encoder
    given = check_options(options)
    try:
        return CRNN(height, **given)
    except TypeError as error:
        raise UserError(f"encoder 'crnn' does not take {given}: {error}") from error
