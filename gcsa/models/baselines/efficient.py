"""The efficient transformers that Horn et al. compare Performers with, as image classifiers around their packages.

Linformer (Wang et al. 2020) projects keys and values along the tokens to a fixed number; the Routing Transformer (Roy et
al. 2020) attends within clusters of tokens, found by k-means whose centres follow each training step. Both come from the
PyPI packages `linformer` and `routing-transformer`, which the extra `baselines` installs. Patches, absolute encoding and
head are those of `performer_tiny`. The Routing Transformer's commitment loss, 1e-4 of the distance to the centres, is
left out, for a classifier gives scores only.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any

import torch
from timm.models import build_model_with_cfg
from torch import Tensor, nn

from gcsa._utils.errors import MissingExtraError, UserError
from gcsa._utils.options import Count, Range, Width
from gcsa._utils.validation import check_divisor
from gcsa.models.backbone import ImageSize, height_and_width
from gcsa.models.baselines.performer import TokenClassifier, TokenOptions
from gcsa.models.registry import MODEL_OPTIONS, refuse_features_only


def require(package: str) -> ModuleType:
    """The imported package. Raises ImportError naming the extra where it is missing."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this model needs the package {error.name!r}: install gcsa-vit[baselines]", "baselines.missing"
        ) from error


@dataclass(frozen=True, kw_only=True)
class EfficientOptions(TokenOptions):
    """Options of both; images of another size than `img_size` are refused."""

    img_size: Annotated[ImageSize, "pixels a side"] = 28
    patch_size: Annotated[int, Range(1, 1024), "pixels between tokens; 1: every pixel is one"] = 2
    dim: Annotated[Width, "channels"] = 48
    depth: Annotated[Count, "blocks"] = 3
    num_heads: Annotated[Count, "attention heads; must divide dim"] = 2


@dataclass(frozen=True, kw_only=True)
class LinformerOptions(EfficientOptions):
    """Options of the Linformer."""

    projected: Annotated[Width, "keys and values that the tokens are projected to"] = 64


@dataclass(frozen=True, kw_only=True)
class RoutingOptions(EfficientOptions):
    """Options of the Routing Transformer."""

    clusters: Annotated[
        int, Range(1, 1024), "of equal size, within which tokens attend; must divide the number of tokens"
    ] = 4


class EfficientTransformer(TokenClassifier, ABC):
    """Base of both: a `net` over tokens (B, L, C), for images of one size, because both fix the number of tokens.

    Raises ValueError for heads that do not divide dim, depth below 1 and, when called, images of another size or none.
    """

    def __init__(self, options: EfficientOptions) -> None:
        o = options
        size = height_and_width(o.img_size)
        check_divisor("num_heads", o.num_heads, "dim", o.dim)
        tokens = math.prod(-(-side // o.patch_size) for side in size)
        super().__init__(o, self.make_net(tokens, o, dim=o.dim, depth=o.depth, heads=o.num_heads), True)
        self.size = size

    @abstractmethod
    def make_net(self, tokens: int, options: Any, **sizes: int) -> nn.Module:
        """The package's network over `tokens` tokens."""

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) of the model's `img_size` to unpooled features (B, C, H / p, W / p), rounded up."""
        if tuple(x.shape[2:]) != self.size:
            raise UserError(
                f"this model is for images of {self.size[0]} x {self.size[1]}, not {x.shape[2]} x {x.shape[3]}: "
                f"create it with img_size={tuple(x.shape[2:])}",
                "input.size",
            )
        if x.shape[0] == 0:
            raise UserError("this model takes one image or more, not an empty batch", "input.empty")
        x = self.embed(x)
        out = self.run(x.flatten(1, 2)).unflatten(1, x.shape[1:3])
        return self.norm(out).permute(0, 3, 1, 2)

    def run(self, x: Tensor) -> Tensor:
        """Tokens (B, L, C) to tokens (B, L, C)."""
        return self.blocks(x)


class LinformerClassifier(EfficientTransformer):
    """Linformer with `projected` keys and values. Raises ImportError without the package."""

    def __init__(self, **options: Any) -> None:
        super().__init__(LinformerOptions(**options))

    def make_net(self, tokens: int, options: LinformerOptions, **sizes: int) -> nn.Module:
        return require("linformer").Linformer(seq_len=tokens, k=options.projected, **sizes)


class RoutingTransformerClassifier(EfficientTransformer):
    """Routing Transformer with `clusters` of equal size. Raises ImportError without the package."""

    def __init__(self, **options: Any) -> None:
        super().__init__(RoutingOptions(**options))

    def make_net(self, tokens: int, options: RoutingOptions, **sizes: int) -> nn.Module:
        clusters = options.clusters
        if tokens % clusters != 0:
            divisors = [n for n in range(1, 33) if tokens % n == 0]
            raise UserError(
                f"clusters={clusters} does not divide the {tokens} tokens: choose one of {divisors}", "clusters"
            )
        package = require("routing_transformer")
        return package.RoutingTransformer(max_seq_len=tokens, window_size=tokens // clusters, **sizes)

    def run(self, x: Tensor) -> Tensor:
        """Tokens (B, L, C) to tokens (B, L, C); in training, the centres then move on to this batch's means.

        The package does so in a backward hook that torch has deprecated; here the state after a step is complete.
        """
        x, _ = self.blocks(x)
        if self.training:
            for module in self.blocks.modules():
                if getattr(module, "new_means", None) is not None:
                    with torch.no_grad():
                        module.update()  # type: ignore[operator]
        return x


MODEL_OPTIONS.update(linformer_tiny=LinformerOptions, routing_transformer_tiny=RoutingOptions)


def linformer_tiny(pretrained: bool = False, **kwargs: Any) -> LinformerClassifier:
    """Linformer for 28 x 28 images."""
    refuse_features_only("linformer_tiny", kwargs)
    return build_model_with_cfg(LinformerClassifier, "linformer_tiny", pretrained, **kwargs)


def routing_transformer_tiny(pretrained: bool = False, **kwargs: Any) -> RoutingTransformerClassifier:
    """Routing Transformer for 28 x 28 images."""
    refuse_features_only("routing_transformer_tiny", kwargs)
    return build_model_with_cfg(RoutingTransformerClassifier, "routing_transformer_tiny", pretrained, **kwargs)
