"""The method of computing a group convolution, chosen by its shapes and the device with measured thresholds (ADR 13 and 19).

| method    | computation                                                                                      |
|-----------|--------------------------------------------------------------------------------------------------|
| direct    | `conv2d` with the dense k x k filter                                                             |
| irreps    | a 1 x 1 convolution in the basis of irreps, where it is block-diagonal                           |
| expansion | a k x k convolution as one of 1 x 1 in that basis, on J depthwise convolutions of the map        |

All three compute the same function of the same parameters. `irreps.py` has the derivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["direct", "irreps", "expansion"]


@dataclass(frozen=True)
class ConvShapes:
    """The shapes on which the choice depends.

    Attributes:
        order: elements of the group, N.
        kernel_size: side of the kernel in pixels.
        num_functions: basis functions of the kernel, J.
        in_features, out_features: channels, N times the fields.
        pointwise: a 1 x 1 kernel without stride and padding.
        mixes: whether each output depends on all fields and elements; false for lifting and depthwise convolutions.
        num_siblings: number of convolutions of the same map, this one included, that can share one expansion.
    """

    order: int
    kernel_size: int
    num_functions: int
    in_features: int
    out_features: int
    pointwise: bool = False
    mixes: bool = True
    num_siblings: int = 1


@dataclass(frozen=True)
class Plan:
    """The choice.

    Attributes:
        method: of the convolution by itself.
        use_shared_expansion: whether it shares one expansion with its siblings if they are computed together (`qkv.py`).
    """

    method: Method = "direct"
    use_shared_expansion: bool = False


def should_use_irreps(order: int, width: int) -> bool:
    """Whether a 1 x 1 convolution of at least `width` channels in and out is faster in the basis of irreps.

    Measured by benchmarks/speed/irreps.py; ADR 13 lists the exceptions.
    """
    return order % 2 == 0 and order > 2 and width >= (192 if order >= 8 else 384)


def should_expand(order: int, kernel_size: int, num_functions: int, width: int) -> bool:
    """Whether a k x k convolution from a map to `width` channels is faster on an expansion.

    Measured by benchmarks/speed/expansion.py: a channel of an expansion costs as much as 300 products of a dense convolution
    (ADR 19).
    """
    products = num_functions * (2 * width / order + 300)
    return order % 2 == 0 and order > 2 and products < 0.7 * kernel_size**2 * width


def choose_plan(shapes: ConvShapes, device: str) -> Plan:
    """The plan for a device such as "cpu" or "cuda". Only CPUs use expansions; other devices are faster with dense filters."""
    if not shapes.mixes:
        return Plan()
    if shapes.pointwise:
        use_irreps = should_use_irreps(shapes.order, min(shapes.in_features, shapes.out_features))
        return Plan("irreps" if use_irreps else "direct")
    if shapes.kernel_size == 1 or device != "cpu":
        return Plan()
    sizes = shapes.order, shapes.kernel_size, shapes.num_functions
    return Plan(
        "expansion" if should_expand(*sizes, shapes.out_features) else "direct",
        should_expand(*sizes, shapes.num_siblings * shapes.out_features),
    )
