"""The earlier place of `gcsa.layers.attention.self_attention`."""

from gcsa.layers.attention.self_attention import GroupConvSelfAttention

__all__ = ["GroupConvSelfAttention"]
