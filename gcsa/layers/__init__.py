"""Equivariant layers on feature maps (B, H, W, N, C): what a model is made of, by name.

`SteerableConv2d` is the group convolution, `GroupConvSelfAttention` (G-CSA) and `RelativeSelfAttention` (G-SA) the
attentions, `Block` and `Stem` what `gcsa_*` are made of, `InvariantHead` what turns features into class scores, and `Upsample`,
`Fusion`, `Scalars`, `Vectors` and `Rays` what dense prediction needs.
"""

from gcsa.layers.attention.attend import GroupAttention, LinearAttention, SpatialAttention
from gcsa.layers.attention.relative_self_attention import LiftingSelfAttention, RelativeSelfAttention
from gcsa.layers.attention.self_attention import GroupConvSelfAttention
from gcsa.layers.block import Block, Downsample, FieldMlp, GroupPooling, LowPass, ResidualBlock, Stem
from gcsa.layers.head import CentredMean, InvariantHead, from_nchw, to_nchw
from gcsa.layers.norm import FieldBatchNorm, FieldNorm
from gcsa.layers.outputs import Rays, Scalars, Vectors
from gcsa.layers.positions import LearnedPositions
from gcsa.layers.regularize import FieldDropout
from gcsa.layers.steerable import SteerableConv2d
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
