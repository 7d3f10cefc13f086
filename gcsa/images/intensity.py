"""The scale of a picture's values: percentiles, and normalisation by them."""

import numpy as np

from gcsa._utils.arrays import Array


def percentiles(picture: Array, low: float = 1.0, high: float = 99.8) -> tuple[float, float]:
    """Two values of a picture (H, W, C) below which `low` and `high` percent of its values lie, all channels together.

    They are values that the picture holds (nearest rank), so that they are the same, bit for bit, however it is rotated or
    reflected. Where both are one value, as where less than 0.2% of the picture is not background, they are the least and
    the largest.
    """
    values = picture.reshape(-1)
    if values.dtype.kind == "u":
        return percentile_values(np.bincount(values), low, high)
    ranks = [round(share / 100 * (values.size - 1)) for share in (low, high)]
    ordered = np.partition(values, ranks)
    bottom, top = (float(ordered[rank]) for rank in ranks)
    return (bottom, top) if bottom < top else (float(values.min()), float(values.max()))


def percentile_values(counts: Array, low: float, high: float) -> tuple[float, float]:
    """`percentiles` of whole numbers, from how often each number from 0 on occurs."""
    below = counts.cumsum()
    bottom, top = (
        int(np.searchsorted(below, round(share / 100 * (below[-1] - 1)), side="right")) for share in (low, high)
    )
    if bottom == top:
        there = np.flatnonzero(counts)
        bottom, top = int(there[0]), int(there[-1])
    return float(bottom), float(top)


def normalize(picture: Array, low: float, high: float) -> Array:
    """A picture (H, W, C) to float32 (C, H, W) in which `low` is 0 and `high` is 1; where they agree, `low` is 0.

    Nothing is clipped.
    """
    planes = np.ascontiguousarray(picture.transpose(2, 0, 1)).astype(np.float32)
    return (planes - np.float32(low)) / np.float32((high - low) or 1)
