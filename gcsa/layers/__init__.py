"""Equivariant layers on feature maps (B, H, W, N, C), from which the models are built.

| layers | use |
|---|---|
| `SteerableConv2d` | group convolution |
| `GroupConvSelfAttention`, `RelativeSelfAttention` | attention: G-CSA and G-SA |
| `Stem`, `Block` | the parts of `gcsa_*` |
| `InvariantHead` | class scores from features |
| `Fusion`, `Scalars`, `Rays` | dense prediction |
"""

from gcsa.layers.attention import GroupAttention, GroupConvSelfAttention, SpatialAttention
from gcsa.layers.blocks import Block, FieldMlp, ResidualBlock
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.favor import LinearAttention
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.norm import FieldBatchNorm, FieldDropout, FieldNorm
from gcsa.layers.outputs import Rays, Scalars
from gcsa.layers.pooling import CentredMean, GroupPooling, InvariantHead
from gcsa.layers.positions import LearnedPositions
from gcsa.layers.relative_attention import LiftingSelfAttention, RelativeSelfAttention
from gcsa.layers.stem import Downsample, LowPass, Stem
from gcsa.layers.upsample import Fusion

__all__ = [
    "Block",
    "CentredMean",
    "Downsample",
    "FieldBatchNorm",
    "FieldDropout",
    "FieldMlp",
    "FieldNorm",
    "Fusion",
    "GroupAttention",
    "GroupConvSelfAttention",
    "GroupPooling",
    "InvariantHead",
    "LearnedPositions",
    "LiftingSelfAttention",
    "LinearAttention",
    "LowPass",
    "Rays",
    "RelativeSelfAttention",
    "ResidualBlock",
    "Scalars",
    "SpatialAttention",
    "SteerableConv2d",
    "Stem",
    "from_nchw",
    "to_nchw",
]
