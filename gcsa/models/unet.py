"""Equivariant U-Nets: a G-CSA encoder, a decoder of group convolutions, and outputs that rotate with the image.

The architecture is that of Ronneberger et al. 2015 (arXiv:1505.04597): maps from fine to coarse, and back with a skip connection
at each resolution. All maps between image and outputs are regular fields, so the outputs commute exactly with the rotations by
90 degrees and the reflections of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int, check_ints
from gcsa.groups import Group
from gcsa.layers import (
    Fusion,
    GroupAttention,
    GroupConvSelfAttention,
    LearnedPositions,
    LowPass,
    ResidualBlock,
    SteerableConv2d,
    Stem,
)
from gcsa.layers.norm import FieldNorm
from gcsa.layers.outputs import RAY_SCALE, Rays, Scalars
from gcsa.models.backbone import Backbone, check_input


@dataclass(frozen=True)
class Level:
    """A feature map of an encoder: its fields and its stride in pixels."""

    fields: int
    stride: int


class Encoder(nn.Module):
    """Stem and stages of a gcsa backbone, with their maps from fine to coarse as outputs.

    There is a map behind each convolution of the stem, and one behind the last block of each resolution. Raises ValueError for
    another kind of network.

    Attributes:
        levels: fields and stride of each map.
        min_size: the smallest image side for which every neighbourhood fits into its map, a multiple of the total stride.
    """

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        if not isinstance(backbone, Backbone) or not isinstance(backbone.stem, Stem):
            raise UserError(
                f"{type(backbone).__name__} is no encoder of an equivariant U-Net: choose a model of gcsa, such as "
                "gcsa_pyramid_tiny or gcsa_small",
                "encoder",
            )
        if backbone.feature_info[-1]["num_chs"] != backbone.num_features:
            raise UserError(
                "feature_maps=invariant is for the decoders of other libraries: leave it out of a gcsa_unet",
                "feature_maps",
            )
        self.group, self.size_divisor = backbone.group, backbone.size_divisor
        self.stem: Any = backbone.stem
        self.stages: Any = backbone.stages
        info = backbone.feature_info[backbone.stem_levels :]
        strides = [stage["reduction"] for stage in info]
        sides = [stride * shortest_side(stage) for stride, stage in zip(strides, self.stages, strict=True)]
        self.min_size = -(-max(sides) // self.size_divisor) * self.size_divisor
        self._last = [i for i, stride in enumerate(strides) if stride not in strides[i + 1 :]]
        order = self.group.order if backbone.feature_kind == "regular" else 1
        self.levels = [Level(fields, stride) for fields, stride in self.stem.levels[:-1]]
        self.levels += [Level(info[i]["num_chs"] // order, strides[i]) for i in self._last]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (B, in_chans, H, W) to a map (B, H / s, W / s, N, C) for each of `levels`. Scalar fields are expanded along N."""
        maps = self.stem.maps(x)
        x = self.stem.pool(maps.pop())
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i in self._last:
                maps.append(x.expand(-1, -1, -1, self.group.order, -1))
        return maps


class Decoder(nn.Module):
    """From the coarsest map to the finest: at each level a `Fusion` with the next finer map, then `depth` residual blocks.

    `fields` holds the fields behind each fusion from fine to coarse, one less than there are levels.
    """

    def __init__(self, levels: list[Level], fields: list[int], group: Group, depth: int = 1, **block: Any) -> None:
        super().__init__()
        widths = [*fields, levels[-1].fields]
        self.fusions, self.blocks = nn.ModuleList(), nn.ModuleList()
        for i in reversed(range(len(fields))):
            scale = levels[i + 1].stride // levels[i].stride
            self.fusions.append(Fusion(widths[i + 1], levels[i].fields, widths[i], group, scale))
            self.blocks.append(nn.Sequential(*(ResidualBlock(widths[i], group, **block) for _ in range(depth))))

    def forward(self, maps: list[Tensor]) -> Tensor:
        """The maps of an `Encoder` to one of the finest resolution, (B, H / s, W / s, N, fields[0])."""
        x, *finer = reversed(maps)
        for fuse, blocks, skip in zip(self.fusions, self.blocks, finer, strict=True):
            x = blocks(fuse(x, skip))
        return x


class DenseHead(nn.Module):
    """Outputs for each pixel: `scalars` scalar fields, and distances in pixels along `rays` directions (0: none).

    The layers are a norm, a 1 x 1 group convolution, a GELU, and `outputs`: a second 1 x 1 group convolution whose fields are
    summed up as channels. `outputs` is affine, so that folding makes one convolution of it.
    """

    def __init__(self, fields: int, scalars: int, rays: int, group: Group) -> None:
        super().__init__()
        self.scalars, self.ray_output = Scalars(), Rays(group, rays) if rays else None
        self.count = scalars
        self.norm = FieldNorm(fields, group.order)
        self.hidden = SteerableConv2d(fields, 2 * fields, 1, group)
        self.out = SteerableConv2d(2 * fields, scalars + (self.ray_output.fields if self.ray_output else 0), 1, group)
        if self.out.bias is not None:
            nn.init.ones_(self.out.bias[scalars:])

    def forward(self, x: Tensor) -> Tensor:
        """(B, h, w, N, C) to (B, scalars + rays, h, w)."""
        return self.outputs(F.gelu(self.hidden(self.norm(x))))

    def outputs(self, x: Tensor) -> Tensor:
        """(B, h, w, N, 2 * fields) to (B, scalars + rays, h, w)."""
        x = self.out(x)
        scalars = self.scalars(x[..., : self.count])
        if self.ray_output is None:
            return scalars
        return torch.cat([scalars, RAY_SCALE * self.ray_output(x[..., self.count :])], 1)


class UNet(nn.Module):
    """Images (B, in_chans, H, W) to `scalars` + `rays` outputs for each pixel, (B, scalars + rays, H, W).

    Args:
        backbone: the encoder; its classifier is not used.
        scalars, rays: as in `DenseHead`.
        decoder_fields: regular fields of the decoder from fine to coarse, one for each encoder map in use but the coarsest;
            None for the numbers of the encoder.
        decoder_depth: residual blocks at each of these levels.
        resolution: minimal stride in pixels of the decoder's finest map. Outputs are upsampled from it bilinearly.

    Raises:
        ValueError: a network that is no gcsa backbone, another number of `decoder_fields`, and as in `Rays`; in forward, sides
            that are not multiples of the encoder's stride.

    Attributes:
        size_divisor: the encoder's stride, which must divide both sides of an image.
        min_size: the smallest side of an image, a multiple of `size_divisor`; below it a neighbourhood can exceed its map.
        margin: radius of the receptive field in pixels, rounded up to a multiple of `size_divisor`; None if attention is to all
            positions, or if outputs depend on the position in the image (`positions`, circular padding).
    """

    def __init__(
        self,
        backbone: nn.Module,
        scalars: int,
        rays: int = 0,
        decoder_fields: list[int] | None = None,
        decoder_depth: int = 1,
        resolution: int = 2,
    ) -> None:
        super().__init__()
        for name, value in dict(scalars=scalars, decoder_depth=decoder_depth, resolution=resolution).items():
            check_int(name, value)
        self.encoder = Encoder(backbone)
        self.group, self.size_divisor, self.min_size = (
            self.encoder.group,
            self.encoder.size_divisor,
            self.encoder.min_size,
        )
        levels = [level for level in self.encoder.levels if level.stride >= resolution] or self.encoder.levels[-1:]
        self.unused = len(self.encoder.levels) - len(levels)
        if decoder_fields is None:
            decoder_fields = [level.fields for level in levels[:-1]]
        if decoder_fields:
            check_ints("decoder_fields", decoder_fields)
        if len(decoder_fields) != len(levels) - 1:
            strides = ", ".join(str(level.stride) for level in levels[:-1])
            raise UserError(
                f"decoder_fields={list(decoder_fields)} needs {len(levels) - 1} entries, one for each stride of {strides}",
                "decoder_fields",
            )
        self.stride = levels[0].stride
        self.decoder = Decoder(levels, list(decoder_fields), self.group, decoder_depth)
        width = [*decoder_fields, levels[-1].fields][0]
        self.head = DenseHead(width, scalars, rays, self.group)
        self.margin = receptive_margin(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to (B, scalars + rays, H, W)."""
        height, width = x.shape[2:]
        check_input(height, width, self.size_divisor, self.group.name)
        out = self.head(self.decoder(self.encoder(x)[self.unused :]))
        if self.stride == 1:
            return out
        return F.interpolate(out, scale_factor=float(self.stride), mode="bilinear", align_corners=False)


def shortest_side(stage: nn.Module) -> int:
    """The smallest side of a map, in positions, into which the neighbourhoods of all attention in `stage` fit."""
    sides = [1]
    for module in stage.modules():
        if isinstance(module, GroupAttention) and module.radius is not None:
            sides.append(2 * module.radius + 1 if module.circular else module.radius)
    return max(sides)


def receptive_margin(network: UNet) -> int | None:
    """The radius of the receptive field in pixels, rounded up to a multiple of the encoder's stride; None for the whole image.

    It is the sum of the reach of all layers on the longest path, which passes all of them.
    """
    encoder = network.encoder
    if any(isinstance(part, LearnedPositions) or getattr(part, "circular", False) for part in encoder.modules()):
        return None
    reach, stride = 0, 1
    attentions = [module for module in encoder.stages.modules() if isinstance(module, GroupConvSelfAttention)]
    inside = {part for attention in attentions for part in attention.modules()} - set(attentions)
    stem = encoder.stem
    ordered = [layer for pair in zip(stem.low_passes, stem.convs, strict=True) for layer in pair]
    for module in [part for layer in (*ordered, stem.pool, encoder.stages) for part in layer.modules()]:
        if module in inside:
            continue
        if isinstance(module, SteerableConv2d):
            reach += stride * (module.kernel_size // 2)
            stride *= module.stride
        elif isinstance(module, LowPass):
            reach += stride
        elif isinstance(module, GroupConvSelfAttention):  # queries, keys and values are parallel convolutions
            radius = getattr(module.attend, "radius", None)
            if radius is None:
                return None
            kernels = [part.kernel_size for part in module.modules() if isinstance(part, SteerableConv2d)]
            reach += stride * (radius + max(kernels) // 2)
    strides = [level.stride for level in encoder.levels[network.unused :]]
    for fine, coarse, blocks in zip(strides, strides[1:], reversed(network.decoder.blocks), strict=False):
        reach += coarse if coarse > fine else 0  # of the upsampling
        convs = [module for module in blocks.modules() if isinstance(module, SteerableConv2d)]
        reach += fine * sum(conv.kernel_size // 2 for conv in convs)
    reach += network.stride if network.stride > 1 else 0
    return -(-reach // network.size_divisor) * network.size_divisor
