"""Samples the functions that the package ships, by escnn: `python -m gcsa.layers.planar`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gcsa.layers.planar import QUARTER, SHIPPED, key, sample

ROTATIONS = (1, 2, 3, 4, 6, 8, 12, 16)  # of c and d groups
SIZES = range(1, 10)
LARGER = (11, 13, 15, 16)  # of groups of quarter turns and mirrors alone, whose tables are small


def wanted() -> set[tuple[Fraction, int]]:
    """Turns below a quarter, and kernel sizes."""
    turns = {Fraction(g, rotations) % QUARTER for rotations in ROTATIONS for g in range(rotations)}
    return {(turn, size) for turn in turns for size in SIZES} | {(Fraction(0), size) for size in LARGER}


def arrays() -> dict[str, NDArray[np.float64]]:
    """What the file holds."""
    return {key(turn, size): sample(turn, size) for turn, size in sorted(wanted())}


def main(file: Path = SHIPPED) -> None:
    """Writes the file, the same bytes each time."""
    np.savez(file, **arrays())


if __name__ == "__main__":
    main()
