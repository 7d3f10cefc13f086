"""The planar functions that kernels are made of, sampled on turned grids of pixels: escnn's Gaussian rings times circular
harmonics, with escnn's widths and cut-off (Weiler & Cesa 2019, arXiv:1911.08251).

Those of the common groups and kernel sizes lie beside this file, sampled once by escnn: `python -m gcsa.layers.planar` makes
them. Others are sampled when they are asked for, which needs escnn (ADR 24).
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gcsa._utils.errors import MissingExtraError

SHIPPED = Path(__file__).with_name("functions.npz")
QUARTER = Fraction(1, 4)


def rings(kernel_size: int) -> tuple[list[float], list[float]]:
    """Radii and widths (in pixels) of the Gaussian rings of a k x k kernel.

    For odd k they are escnn's defaults (0, 1, ..., (k - 1) / 2). For even k no grid point lies at the centre, so
    the rings are put at 0.5, 1.5, ..., where escnn's own choice loses a function.
    """
    radii = [(kernel_size - 1) / 2 - i for i in reversed(range(math.ceil(kernel_size / 2)))]
    widths = [0.6] * (len(radii) - 1) + [0.4]
    return radii, [0.005 if radius == 0 else width for radius, width in zip(radii, widths, strict=True)]


def max_frequency(radius: float, kernel_size: int) -> float:
    """The highest circular frequency kept on the ring of this radius: escnn's default, extended to half radii."""
    if radius == (kernel_size - 1) / 2:
        return min(2 * radius, 2)
    return 2 * radius - (1 if radius and radius % 2 == 0 else 0)


def turned_functions(rotations: int, kernel_size: int) -> NDArray[np.float64]:
    """b_j(g^-1 x) on the k x k grid for each of so many rotations g: shape (rotations, J, k, k).

    Only turns below a quarter are sampled: the rest are quarter turns of the pixels of those, so that quarter turns are
    exact to the last bit, whatever the precision the numbers are rounded to.

    Raises ImportError where the numbers are not shipped and escnn is not installed.
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
                    "and a kernel of up to 9 pixels"
                ) from error
        images.append(np.rot90(image, quarters, (-2, -1)))
    return np.stack(images)


def key(turn: Fraction, kernel_size: int) -> str:
    """The name of an array in the shipped file."""
    return f"k{kernel_size}_turn_{turn.numerator}_{turn.denominator}"


@cache
def shipped(turn: Fraction, kernel_size: int) -> NDArray[np.float64] | None:
    """`sample`, as the package brings it; None where it does not."""
    with np.load(SHIPPED, allow_pickle=False) as arrays:
        return arrays.get(key(turn, kernel_size))


@cache
def sample(turn: Fraction, kernel_size: int) -> NDArray[np.float64]:
    """escnn's functions b_j turned by that fraction of a circle, on the k x k grid: shape (J, k, k)."""
    with warnings.catch_warnings():
        # escnn reports the absence of py3nj, which only its three-dimensional groups use; the first import of its
        # sources also reports their invalid escape sequences.
        warnings.filterwarnings("ignore", message=".*py3nj.*")
        warnings.filterwarnings("ignore", message="invalid escape sequence")
        from escnn import gspaces

    offsets = np.arange(kernel_size) - (kernel_size - 1) / 2
    points = np.stack([np.tile(offsets, kernel_size), -np.repeat(offsets, kernel_size)])  # x to the right, y upwards
    angle = -2 * math.pi * float(turn)
    inverse = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    radii, widths = rings(kernel_size)
    cut_off = {np.float32(radius): max_frequency(radius, kernel_size) for radius in radii}
    with torch.device("cpu"):  # also where a model is created on the meta device, which holds no numbers
        space = gspaces.trivialOnR2()
        basis = space.build_kernel_basis(
            space.trivial_repr,
            space.trivial_repr,
            sigma=widths,
            rings=radii,
            maximum_frequency=math.ceil(max(cut_off.values())),
        )
        keep = [i for i, b in enumerate(basis) if b["irrep:frequency"] <= cut_off[np.float32(b["radius"])]]
        # escnn shares one basis process-wide and samples it in its own float32, so the precision is put back after use.
        sampled = basis.double().sample(torch.from_numpy((inverse @ points).T.copy()))[:, keep, 0, 0].T.numpy()
        basis.float()
    return sampled.reshape(-1, kernel_size, kernel_size)
