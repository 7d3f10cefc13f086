"""Kernel bases in closed form, as small tables of planar functions.

A kernel between regular fields is k[g, gh](x) = psi_h(g^-1 x) with any planar functions psi_h, one for each h; from
an image it is k[g](x) = psi(g^-1 x) (poster eq. 1). So every equivariant filter follows from planar functions b_j,
sampled at the rotated points g^-1 x. There are two sets of functions:

- "full": one function for each of the k^2 pixels. Every element of the group must map the pixels onto one another, as rotations
  by 90 degrees and reflections do. These span all filters (Cohen & Welling 2016, Group equivariant convolutional networks,
  arXiv:1602.07576).
- "band": Gaussian rings times circular harmonics, with escnn's widths and cut-off, for any group. They are band-limited, so that
  a pixel grid can represent them at other angles (Weiler & Cesa 2019, arXiv:1911.08251).

No equation is solved numerically, so the tables are the same on every machine (ADR 2, ADR 24).
"""

from __future__ import annotations

import hashlib
import math
import warnings
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcsa._utils.errors import MissingExtraError, UserError
from gcsa.groups import Group

BASES = ("full", "band")
SHIPPED = Path(__file__).with_name("kernels.npz")
QUARTER = Fraction(1, 4)


def rings(kernel_size: int) -> tuple[list[float], list[float]]:
    """Radii and widths (in pixels) of the Gaussian rings of a k x k kernel.

    For odd k they are escnn's defaults (0, 1, ..., (k - 1) / 2). For even k no grid point is at the centre, so the rings are at
    0.5, 1.5, ...; escnn's own choice loses a function there.
    """
    radii = [(kernel_size - 1) / 2 - i for i in reversed(range(math.ceil(kernel_size / 2)))]
    widths = [0.6] * (len(radii) - 1) + [0.4]
    return radii, [0.005 if radius == 0 else width for radius, width in zip(radii, widths, strict=True)]


def max_frequency(radius: float, kernel_size: int) -> float:
    """The highest circular frequency kept on the ring of this radius: escnn's default, extended to half radii."""
    if radius == (kernel_size - 1) / 2:
        return min(2 * radius, 2)
    return 2 * radius - (1 if radius and radius % 2 == 0 else 0)


def count_functions(kernel_size: int, basis: str) -> int:
    """The number J of planar functions, without the functions."""
    if basis == "full":
        return kernel_size**2
    return sum(1 + 2 * math.floor(max_frequency(radius, kernel_size)) for radius in rings(kernel_size)[0])


def rotated_functions(rotations: int, kernel_size: int) -> NDArray[np.float64]:
    """b_j(g^-1 x) on the k x k grid for each of so many rotations g: shape (rotations, J, k, k).

    Only angles below 90 degrees are sampled. The others rotate the pixels of these by multiples of 90 degrees. So rotations by
    90 degrees are exact to the last bit in every precision.

    Raises ImportError if the package does not contain the numbers and escnn is not installed.
    """
    images = []
    for g in range(rotations):
        quarters, turn = divmod(Fraction(g, rotations), QUARTER)
        image = shipped(turn, kernel_size)
        if image is None:
            try:
                image = sample(turn, kernel_size)
            except ImportError as error:
                raise MissingExtraError(
                    f"no tables are shipped for {rotations} rotations and kernels of size {kernel_size}, and escnn, which "
                    "makes them, is not installed: pip install gcsa-vit[escnn], or choose c1, c2, c4, c8, d1, d2, d4 or d8 "
                    "and a kernel of up to 9 pixels",
                    "escnn.missing",
                ) from error
        images.append(np.rot90(image, quarters, (-2, -1)))
    return np.stack(images)


def key(turn: Fraction, kernel_size: int) -> str:
    """The name of an array in `kernels.npz`."""
    return f"k{kernel_size}_turn_{turn.numerator}_{turn.denominator}"


@cache
def shipped(turn: Fraction, kernel_size: int) -> NDArray[np.float64] | None:
    """The result of `sample` from the package's file, or None."""
    with np.load(SHIPPED, allow_pickle=False) as arrays:
        return arrays.get(key(turn, kernel_size))


@cache
def sample(turn: Fraction, kernel_size: int) -> NDArray[np.float64]:
    """escnn's functions b_j on the k x k grid, rotated by the fraction `turn` of a full rotation: shape (J, k, k)."""
    with warnings.catch_warnings():
        # escnn warns of the absence of py3nj, which only its three-dimensional groups use. Its first import also warns of
        # invalid escape sequences in its sources.
        warnings.filterwarnings("ignore", message=".*py3nj.*")
        warnings.filterwarnings("ignore", message="invalid escape sequence")
        from escnn import gspaces

    offsets = np.arange(kernel_size) - (kernel_size - 1) / 2
    points = np.stack([np.tile(offsets, kernel_size), -np.repeat(offsets, kernel_size)])  # x to the right, y upwards
    angle = -2 * math.pi * float(turn)
    inverse = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    radii, widths = rings(kernel_size)
    cut_off = {np.float32(radius): max_frequency(radius, kernel_size) for radius in radii}
    with torch.device("cpu"):  # a model may be under construction on the meta device, which holds no numbers
        space = gspaces.trivialOnR2()
        basis = space.build_kernel_basis(
            space.trivial_repr,
            space.trivial_repr,
            sigma=widths,
            rings=radii,
            maximum_frequency=math.ceil(max(cut_off.values())),
        )
        keep = [i for i, b in enumerate(basis) if b["irrep:frequency"] <= cut_off[np.float32(b["radius"])]]
        # escnn shares one float32 basis in the whole process, so its precision is restored after use.
        sampled = basis.double().sample(torch.from_numpy((inverse @ points).T.copy()))[:, keep, 0, 0].T.numpy()
        basis.float()
    return sampled.reshape(-1, kernel_size, kernel_size)


ROTATIONS = (1, 2, 3, 4, 6, 8, 12, 16)  # of c and d groups
SIZES = range(1, 10)
LARGER = (11, 13, 15, 16)  # only of groups of 90-degree rotations and reflections, whose tables are small


def shipped_keys() -> set[tuple[Fraction, int]]:
    """Angles below 90 degrees, as fractions of a full rotation, and kernel sizes whose functions the package contains."""
    turns = {Fraction(g, rotations) % QUARTER for rotations in ROTATIONS for g in range(rotations)}
    return {(turn, size) for turn in turns for size in SIZES} | {(Fraction(0), size) for size in LARGER}


def write_shipped(file: Path = SHIPPED) -> None:
    """Writes the package's tables, sampled by escnn, to `file`: the same bytes each time."""
    np.savez(file, **{key(turn, size): sample(turn, size) for turn, size in sorted(shipped_keys())})


def check_basis(basis: str, group: Group) -> None:
    """Raises ValueError for an unknown basis, and for "full" with a group that does not map the pixels onto themselves."""
    if basis not in BASES:
        raise UserError(f"unknown basis {basis!r}: choose one of {', '.join(BASES)}", "basis", basis=basis)
    if basis == "full" and len(group.exact_elements) < group.order:
        raise UserError(
            f"basis='full' needs a group of rotations by 90 degrees and reflections, such as c4 or d4, not {group}: use band",
            "basis.group",
        )


def planar_tables(group: Group, kernel_size: int, basis: str = "band") -> NDArray[np.float64]:
    """Table [g, j] holds b_j(g^-1 x) on the k x k grid: shape (|H|, J, k, k), unit mean energy for each j.

    The package contains the band-limited functions for common groups and kernel sizes. escnn computes the others.

    Raises ImportError if escnn is needed and not installed.
    """
    return _tables(group, kernel_size, basis).copy()


@cache
def steering_matrices(group: Group, kernel_size: int, basis: str) -> NDArray[np.float64]:
    """Numbers [h, i, j], (|H|, J, J), with b_i(h^-1 x) = sum over j of [h, i, j] b_j(x)."""
    tables = planar_tables(group, kernel_size, basis)
    samples = tables.reshape(*tables.shape[:2], -1).swapaxes(1, 2)  # (|H|, k * k, J)
    count = tables.shape[1]
    functions = samples.reshape(-1, count)
    inverse = np.linalg.pinv(functions, rcond=max(functions.shape) * np.finfo(float).eps)
    return np.stack([(inverse @ samples[group.cayley[:, h]].reshape(-1, count)).T for h in range(group.order)])


@cache
def fingerprint(group: Group, kernel_size: int, basis: str = "band") -> int:
    """48 bits that identify the tables to four decimals: equal on every machine that builds the same functions."""
    return _digest(np.rint(_tables(group, kernel_size, basis) * 1e4).astype("<i4").tobytes())


def fingerprint_of(tables: Tensor, group: Group, kernel_size: int, basis: str = "band") -> int:
    """`fingerprint` for a layer's own tables (|H|, J, k, k): the same number where they hold `planar_tables`, up to the
    rounding of any floating-point type, and another where they hold anything else."""
    held = tables.detach().cpu().double().numpy()
    if not np.allclose(held, _tables(group, kernel_size, basis), rtol=1e-2, atol=1e-2):
        return _digest(held.tobytes())
    return fingerprint(group, kernel_size, basis)


def _tables(group: Group, kernel_size: int, basis: str) -> NDArray[np.float64]:
    return _pixels(group, kernel_size) if basis == "full" else _planar_tables(group, kernel_size)


@cache
def _pixels(group: Group, kernel_size: int) -> NDArray[np.float64]:
    with torch.device("cpu"):  # also where a model is created on the meta device
        pixels = torch.eye(kernel_size**2, dtype=torch.float64).unflatten(1, (kernel_size, kernel_size))
        return np.stack([group.act_on_grid(pixels, g).numpy() for g in range(group.order)])


@cache
def _planar_tables(group: Group, kernel_size: int) -> NDArray[np.float64]:
    tables = rotated_functions(group.rotations, kernel_size)
    if group.mirror:
        # Element N + r, a reflection and then a rotation by r, equals a rotation by -r and then a reflection. The reflection
        # only flips the pixels.
        tables = np.concatenate([tables, np.flip(tables[-np.arange(group.rotations)], -1)])
    return tables / np.sqrt(np.square(tables).sum(axis=(2, 3)).mean(axis=0))[None, :, None, None]


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")
