"""Checks of arguments, for everything that is built from numbers that a person or a file gives: each raises ValueError
in one sentence, before any work."""

from typing import Any

import torch
import torch.fx
from timm.layers import register_notrace_function

from gcsa._utils import validation
from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float, check_int, check_ints, is_int

LARGEST_KERNEL = 32  # the planar tables of larger ones take minutes and hundreds of megabytes


def check_whole(least: int = 1, **values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is no whole number or is below `least`."""
    for name, value in values.items():
        check_int(name, value, least)


def check_rate(**values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is no probability below 1."""
    for name, value in values.items():
        validation.check_rate(name, value)


def check_heads(fields: int, heads: int, name: str = "fields") -> None:
    """Raises ValueError, naming the choices, unless `heads` divides `fields`."""
    check_whole(**{name: fields})
    check_int("heads", heads)
    if fields % heads != 0:
        divisors = [n for n in range(1, fields + 1) if fields % n == 0]
        raise UserError(f"heads={heads} does not divide {name}={fields}: choose one of {divisors}")


def check_radius(radius: int | str | None) -> int | None:
    """The radius of a neighbourhood in positions; None for "all" or None, which stand for all positions.

    Raises ValueError for anything else.
    """
    if radius is None or radius == "all":
        return None
    if not is_int(radius, 0):
        raise UserError(f"radius={radius!r} must be a whole number of positions, 0 or more, or 'all' for all positions")
    return int(radius)


@torch.fx.wrap
@register_notrace_function
def check_reach(radius: int, height: int, width: int, circular: bool = False) -> None:
    """Raises ValueError for a neighbourhood larger than the map, which would cost more than all positions do, or, where it is
    `circular`, for one that meets itself."""
    if circular and 2 * radius >= min(height, width):
        raise UserError(f"radius {radius} wraps round a {height} x {width} map more than once: use 'all' there")
    if radius > max(height, width):
        raise UserError(
            f"radius {radius} is larger than a map of {height} x {width} positions: use at most "
            f"{max(height, width) - 1}, or 'all' for all positions"
        )


def check_positive(or_zero: bool = False, **values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is no finite number above 0 (or, `or_zero`, 0)."""
    for name, value in values.items():
        check_float(name, value, 0) if or_zero else check_float(name, value, above=0)


def check_convolution(
    in_fields: int,
    out_fields: int,
    kernel_size: int,
    stride: int,
    padding_mode: str,
    depthwise: bool,
    lift: bool,
    sharers: int,
) -> None:
    """Raises ValueError for arguments of a `SteerableConv2d` that do not go together."""
    check_whole(in_fields=in_fields, out_fields=out_fields, kernel_size=kernel_size, stride=stride, sharers=sharers)
    if kernel_size > LARGEST_KERNEL:
        raise UserError(f"kernel_size must be {LARGEST_KERNEL} or less, not {kernel_size}")
    if kernel_size % 2 == 0 and stride == 1:
        raise UserError(
            f"an even kernel_size ({kernel_size}) needs a stride above 1: it has no centre; use {kernel_size + 1}"
        )
    if padding_mode not in ("zeros", "circular"):
        raise UserError(f"unknown padding_mode {padding_mode!r}: choose zeros or circular")
    if depthwise and (lift or in_fields != out_fields):
        raise UserError(f"depthwise needs as many fields out as in, and no lifting, not {in_fields} to {out_fields}")


def check_sequence(**values: Any) -> None:
    """Raises ValueError, naming the argument, for a value that is not one or more whole numbers from 1 on."""
    for name, value in values.items():
        check_ints(name, value)


@torch.fx.wrap
@register_notrace_function
def check_exact(height: int, width: int, kernel_size: int, stride: int, padding: int) -> None:
    """Raises ValueError unless quarter turns commute with the stride: (size + 2 p - k) mod s = 0 on both axes."""
    for size in (height, width):
        rest = (size + 2 * padding - kernel_size) % stride
        if rest != 0:
            below = size - rest
            near = f"{below} or {below + stride}" if below >= max(kernel_size - 2 * padding, 1) else f"{below + stride}"
            raise UserError(
                f"a map of {height} x {width} breaks exact equivariance in a convolution with kernel {kernel_size}, "
                f"stride {stride} and padding {padding}: use a size of {near}"
            )


@torch.fx.wrap
@register_notrace_function
def check_order(given: int, order: int) -> None:
    """Raises ValueError for a map with another group axis than a convolution's: as many channels do not make it one."""
    if given != order:
        raise UserError(
            f"a convolution of a group of order {order} takes maps (B, H, W, {order}, C), not (B, H, W, {given}, C)"
        )
