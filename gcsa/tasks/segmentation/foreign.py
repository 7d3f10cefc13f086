"""Segmenters of others, with the interface of ours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError, one_line
from gcsa.groups import group as make_group


class ForeignSegmenter(nn.Module):
    """A segmenter of somebody else, with the interface of `Segmenter`: images (B, 3, H, W) to maps (B, out_chans, H, W).

    Args:
        network: gives a map of images, of their height and width, as `outputs` says.
        name: of messages.
        outputs: one of `OUTPUTS`.

    Raises:
        UserError: a network that gives something else, here or for an image.
    """

    def __init__(self, network: nn.Module, name: str, outputs: str) -> None:
        super().__init__()
        self.network, self.name, self.outputs, self.in_chans = network, name, outputs, 3
        self.output = "instances" if outputs == "instances" else "classes"
        self.size_divisor, self.min_size, self.margin = 32, 64, None
        self.group = make_group("c1")
        self.options: dict[str, Any] = {}
        with torch.inference_mode():
            channels = self._maps(torch.zeros(1, 3, 64, 96)).shape[1]
        if outputs == "instances" and channels < 4:
            raise UserError(
                f"{name} gives {channels} channels: a probability and 3 distances or more are wanted", "outputs.star"
            )
        if outputs == "probability" and channels != 1:
            raise UserError(f"{name} gives {channels} channels: one probability is wanted", "outputs.probability")
        self.rays, self.num_classes = channels - 1, max(2, channels)
        self.fixed = nn.Parameter(torch.zeros(()), requires_grad=False)  # says device and dtype, which a file does not

    def _maps(self, images: Tensor) -> Tensor:
        """The output for images, all parts in one. Raises UserError for one that is no map of their size, or not finite."""
        shape = " x ".join(map(str, images.shape[1:]))
        try:
            maps = self.network(images)
            maps = torch.cat(maps, 1) if isinstance(maps, tuple | list) else maps
        except Exception as error:  # of a stranger's network
            raise UserError(
                f"{self.name} does not take an image of {shape}: {one_line(error)}", "network.refused", shape=shape
            ) from error
        given = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
        if not isinstance(maps, Tensor) or maps.ndim != 4 or maps.shape[2:] != images.shape[2:]:
            raise UserError(
                f"{self.name} gives {given} for an image of {shape}: a map (B, C, H, W) of its size is wanted",
                "network.outputs",
            )
        if not maps.isfinite().all():
            raise UserError(f"{self.name} gives NaN or infinite values for an image of {shape}", "network.not_finite")
        return maps

    def forward(self, images: Tensor) -> Tensor:
        maps = self._maps(images)
        first = maps[:, :1]
        is_share = bool(((first >= -1e-3) & (first <= 1 + 1e-3)).all())
        if self.outputs == "classes":
            if maps.shape[1] > 1:
                return maps
            if is_share:
                raise UserError(
                    f"{self.name} gives one value from 0 to 1 for each pixel, as a probability is: name --outputs probability",
                    "outputs.not_probability",
                )
            return torch.cat([torch.zeros_like(maps), maps], 1)
        if not is_share:
            raise UserError(
                f"{self.name} gives values beyond 0 to 1 in the first channel, which is to be a probability",
                "outputs.not_star",
            )
        logits = first.clamp(1e-6, 1 - 1e-6).logit()
        return torch.cat(
            [logits, maps[:, 1:]] if self.outputs == "instances" else [torch.zeros_like(logits), logits], 1
        )
