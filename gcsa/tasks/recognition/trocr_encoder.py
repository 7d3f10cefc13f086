"""The line encoder as transformers knows it: `GcsaOcrModel`, known to AutoConfig and AutoModel once imported.

All rows and group elements of a column of the map, read in an upright frame (see `reading`), become `upsample` tokens,

    token_t = norm(gelu(W column_t)) + p_t,   p_t = (sin(t f_i), cos(t f_i)),  f_i = 10000^(-i / (hidden_size / 2)),

with the sinusoids of Vaswani et al. 2017, Attention is all you need: a decoder must be able to go along the line, and
the line comes in its own frame, where left and right are known.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from gcsa._utils.errors import UserError
from gcsa.groups import group as make_group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.layout import from_nchw
from gcsa.layers.norm import FieldNorm
from gcsa.layers.stem import LowPass
from gcsa.models.gcsa import GCSA
from gcsa.tasks.recognition.encoder import create_encoder


def sinusoids(steps: int, size: int) -> Tensor:
    """p (steps, size) of the equation above, float32, sines first."""
    frequencies = torch.exp(torch.arange(size // 2) * (-2 * math.log(10000) / size))
    angles = torch.arange(steps)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), 1)


class GcsaOcrConfig(PreTrainedConfig):
    """Of `GcsaOcrModel`.

    Attributes:
        architecture: timm name of a `GCSA` model.
        options: its arguments, where they are not the defaults.
        height: of the lines in pixels.
        hidden_size: numbers a token, even.
        upsample: tokens a column of the map.
    """

    model_type = "gcsa_ocr"

    architecture: str = "gcsa_ocr_tiny"
    options: dict[str, Any] | None = None
    height: int = 40
    hidden_size: int = 256
    upsample: int = 2


class GcsaOcrModel(PreTrainedModel):
    """Line images (B, 1, height, W), ink 1 on paper 0, to tokens (B, upsample * W / stride, hidden_size).

    Raises ValueError for an architecture that is no `GCSA` model, an option that it does not take, a height that its
    stride does not divide, an odd hidden_size and sizes below 1.
    """

    config: GcsaOcrConfig
    config_class = GcsaOcrConfig
    base_model_prefix = "gcsa_ocr"
    main_input_name = "pixel_values"
    input_modalities = "image"

    def __init__(self, config: GcsaOcrConfig) -> None:
        super().__init__(config)
        for name in ("height", "hidden_size", "upsample"):
            if getattr(config, name) < 1:
                raise UserError(f"{name} must be 1 or more, not {getattr(config, name)}")
        if config.hidden_size % 2:
            raise UserError(f"hidden_size must be even, for sines and cosines, not {config.hidden_size}")
        self.backbone: Any = create_encoder(config.architecture, config.height, **(config.options or {}))
        if not isinstance(self.backbone, GCSA):
            raise UserError(f"{config.architecture!r} is no G-CSA model: choose gcsa_ocr_tiny or gcsa_ocr_small")
        self.group = make_group(self.backbone.group)
        self.stride = self.backbone.multiple
        if config.height % self.stride:
            raise UserError(f"height must be a multiple of {self.stride}, the stride, not {config.height}")
        self.rows = config.height // self.stride
        self.columns = nn.Linear(self.rows * self.backbone.num_features, config.upsample * config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """What no checkpoint holds. transformers builds on the meta device and guards loaded parameters."""
        super()._init_weights(module)
        if isinstance(module, SteerableConv2d):
            module.init_non_persistent_buffers()
            module.reset_parameters()
        elif isinstance(module, LowPass):
            module.init_non_persistent_buffers()
        elif isinstance(module, FieldNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)

    def features(self, images: Tensor) -> Tensor:
        """Lines (B, 1, H, W), turned or not, to feature maps (B, h, w, N, C)."""
        return from_nchw(self.backbone.forward_features(images), self.group.order)

    def tokens(self, features: Tensor) -> Tensor:
        """Maps (B, rows, w, N, C) in the upright frame to tokens (B, upsample * w, hidden_size)."""
        x = self.columns(features.transpose(1, 2).flatten(2))
        x = self.norm(F.gelu(x.unflatten(2, (self.config.upsample, -1)).flatten(1, 2)))
        return x + sinusoids(x.shape[1], x.shape[2]).to(x)

    def forward(
        self, pixel_values: Tensor, return_dict: bool | None = None, **kwargs: Any
    ) -> BaseModelOutput | tuple[Tensor]:
        """Upright lines (B, 1, height, W) of one width, for no token is masked. Other arguments of transformers'
        encoders are ignored."""
        tokens = self.tokens(self.features(pixel_values))
        return (tokens,) if return_dict is False else BaseModelOutput(last_hidden_state=tokens)


AutoConfig.register(GcsaOcrConfig.model_type, GcsaOcrConfig)
AutoModel.register(GcsaOcrConfig, GcsaOcrModel)
