"""The earlier place of `gcsa.layers.attention.attend`."""

from gcsa.layers.attention.attend import (
    GroupAttention,
    LinearAttention,
    SpatialAttention,
    attend_everywhere,
    attend_linear,
    attend_nearby,
)

__all__ = [
    "GroupAttention",
    "LinearAttention",
    "SpatialAttention",
    "attend_everywhere",
    "attend_linear",
    "attend_nearby",
]
