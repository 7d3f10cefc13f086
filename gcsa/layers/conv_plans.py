"""Which way a group convolution is computed."""

from __future__ import annotations


def computes_in_irreps(order: int, width: int) -> bool:
    """Whether a 1 x 1 convolution of a group of this order, `width` channels or more in and out, is taken to the irrep
    basis: where it was the faster on the whole, by benchmarks/speed/irreps.py; ADR 13 names the exceptions."""
    return order % 2 == 0 and width >= (192 if order >= 8 else 384) and order > 2


def should_expand(order: int, kernel_size: int, functions: int, width: int) -> bool:
    """Whether a k x k convolution from a map to `width` channels, by this many basis functions, is computed on an
    expansion: where it was the faster by benchmarks/speed/expansion.py. A channel of an expansion cost as much there as 300
    products of a dense convolution (docs/adr/0019)."""
    products = functions * (2 * width / order + 300)
    return order % 2 == 0 and order > 2 and products < 0.7 * kernel_size**2 * width
