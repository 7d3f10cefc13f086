"""Equivariant layers on feature maps (B, H, W, N, C): what a model is made of, by name.

`SteerableConv2d` is the group convolution, `GroupConvSelfAttention` (G-CSA) and `RelativeSelfAttention` (G-SA) the
attentions, `Block` and `Stem` what `gcsa_*` are made of, `InvariantHead` what turns features into class scores, and `Upsample`,
`Fusion`, `Scalars`, `Vectors` and `Rays` what dense prediction needs.
"""

from gcsa.layers.attention import GroupAttention, GroupConvSelfAttention, SpatialAttention
from gcsa.layers.blocks import Block, FieldMlp, ResidualBlock
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.favor import LinearAttention
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.norm import FieldBatchNorm, FieldDropout, FieldNorm
from gcsa.layers.outputs import Rays, Scalars, Vectors
from gcsa.layers.pooling import CentredMean, GroupPooling, InvariantHead
from gcsa.layers.positions import LearnedPositions
from gcsa.layers.relative_attention import LiftingSelfAttention, RelativeSelfAttention
from gcsa.layers.stem import Downsample, LowPass, Stem
from gcsa.layers.upsample import Fusion, SteerableConvTranspose2d, Upsample

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
    "SteerableConvTranspose2d",
    "Stem",
    "Upsample",
    "Vectors",
    "from_nchw",
    "to_nchw",
]
