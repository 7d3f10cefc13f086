"""Attention of one position to all others, averaged over heads, read from a model as it runs.

The output of `attend.py` is linear in v with the weights as coefficients, so the gradient of one position's output
with respect to v is its row of weights. This holds for `group`, `spatial` and `linear`, with or without a
neighbourhood, and needs no second softmax. Other transformers are read through timm's `AttentionExtract`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timm.utils import AttentionExtract
from torch import Tensor, nn

from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.evaluation.rotations import border_value
from gcsa.layers.attention import ATTENTION

Pixel = tuple[int, int]


def striking_pixel(image: Tensor) -> Pixel:
    """Row and column of the pixel around which an image (C, H, W) differs most from its border."""
    contrast = (image[None] - border_value(image[None])).abs().mean(1, keepdim=True)
    blurred = F.avg_pool2d(contrast, 5, stride=1, padding=2)
    row, column = divmod(int(blurred.argmax()), image.shape[-1])
    return row, column


def attention_maps(model: nn.Module, image: Tensor, query: Pixel) -> list[Tensor]:
    """One map (h, w) a layer, each summing to 1 (less what goes to a class token): the attention of the position that
    holds pixel `query` (row, column) of an image (C, H, W), mean over heads and group elements.

    Empty for models without global self-attention that can be read, such as ResNets and windowed transformers.
    """
    gcsa_layers = [module for module in model.modules() if isinstance(module, tuple(ATTENTION.values()))]
    with evaluation_mode(model) as device:
        batch = image[None].to(device)
        rows = _gcsa_rows(model, gcsa_layers, batch) if gcsa_layers else _timm_rows(model, batch)
        return [row(query[0] / image.shape[-2], query[1] / image.shape[-1]).cpu() for row in rows]


Row = Callable[[float, float], Tensor]


def _gcsa_rows(model: nn.Module, layers: list[nn.Module], batch: Tensor) -> list[Row]:
    calls: list[tuple[nn.Module, tuple[Tensor, ...]]] = []
    hooks = [layer.register_forward_pre_hook(lambda module, args: calls.append((module, args))) for layer in layers]
    try:
        model(batch)
    finally:
        for hook in hooks:
            hook.remove()

    def row_of(layer: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Row:
        def row(down: float, right: float) -> Tensor:
            with torch.enable_grad():
                values = v.detach().requires_grad_()
                out = layer(q.detach(), k.detach(), values)[0, int(down * q.shape[1]), int(right * q.shape[2])]
                (weights,) = torch.autograd.grad(out.sum(), values)
            return weights[0].mean((-2, -1))

        return row

    return [row_of(layer, *args) for layer, args in calls]


def _timm_rows(model: nn.Module, batch: Tensor) -> list[Row]:
    unfused = copy.deepcopy(model)  # the extractor's hooks stay on the model for good
    for module in unfused.modules():
        if hasattr(module, "fused_attn"):
            vars(module)["fused_attn"] = False
    try:
        weights_by_layer = AttentionExtract(unfused, method="hook")(batch)
    except RuntimeError:
        return []
    prefix = int(getattr(model, "num_prefix_tokens", 0))

    def row_of(weights: Tensor, side: int) -> Row:
        def row(down: float, right: float) -> Tensor:
            query = prefix + int(down * side) * side + int(right * side)
            return weights[0, :, query, prefix:].mean(0).unflatten(0, (side, side))

        return row

    rows = []
    for weights in weights_by_layer.values():
        side = math.isqrt(weights.shape[-1] - prefix)
        if weights.shape[0] == 1 and weights.shape[-2] == weights.shape[-1] == side * side + prefix:
            rows.append(row_of(weights, side))
    return rows
