"""Which parts of a slide are tissue, and the grid of patches on them.

Glass is grey and stained tissue is coloured. Otsu's threshold (1979, A threshold selection method from gray-level histograms) parts
the saturations of an overview of the slide.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from gcsa._utils.errors import MissingExtraError
from gcsa.images.slides import Slide
from gcsa.images.windows import resampled, strips

OVERVIEW = 4096
"""Pixels of the longer side of an overview, at most."""
BLOCK = 512
"""Pixels a side of a slide that are resampled at a time."""
LEAST = 16
"""Saturation, of 255, up to which everything is glass: on a slide without tissue, Otsu's threshold would part its noise."""


def overview(slide: Slide) -> NDArray[np.uint8]:
    """The whole slide, of three channels of 8 bits, small: (H, W, 3), of at most `OVERVIEW` pixels a side."""
    step = max(1.0, max(slide.shape) / OVERVIEW)
    height, width = (max(1, round(side / step)) for side in slide.shape)
    level = slide.level_for(step)
    steps = slide.levels[level].shape[0] / height, slide.levels[level].shape[1] / width
    block = max(1, int(BLOCK / max(steps)))
    picture: NDArray[np.uint8] = np.empty((height, width, 3), np.uint8)
    for top, left in product(range(0, height, block), range(0, width, block)):
        shape = min(block, height - top), min(block, width - left)
        values = resampled(slide.levels[level], (top * steps[0], left * steps[1]), steps, shape)
        picture[top : top + shape[0], left : left + shape[1]] = values.round()
    return picture


def tissue(picture: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which pixels of a picture (H, W, 3) are coloured: (H, W). Raises MissingExtraError without scikit-image."""
    try:
        from skimage.filters import threshold_otsu
    except ImportError as error:
        raise MissingExtraError(
            "to find tissue needs scikit-image: pip install gcsa-vit[slides]", "skimage.missing"
        ) from error
    saturation: NDArray[np.uint8] = np.empty(picture.shape[:2], np.uint8)
    for top, bottom in strips(len(picture), 1):
        red, green, blue = np.moveaxis(picture[top:bottom], 2, 0)
        highest = np.maximum(np.maximum(red, green), blue).astype(np.uint16)
        lowest = np.minimum(np.minimum(red, green), blue)
        saturation[top:bottom] = 255 * (highest - lowest) // np.maximum(highest, 1)
    counts = sum(np.bincount(row, minlength=256) for row in saturation)
    threshold = threshold_otsu(hist=(counts, np.arange(256))) if np.count_nonzero(counts) > 1 else LEAST
    return saturation > max(threshold, LEAST)


def grid(shape: tuple[int, int], extent: int) -> NDArray[np.int64]:
    """Rows and columns (n, 2) of the upper left corners of squares of `extent` pixels, side by side and row by row, that cover a picture
    of `shape` from its upper left corner on."""
    rows, columns = (range(0, side, extent) for side in shape)
    return np.array(list(product(rows, columns)), np.int64)


def shares(
    mask: NDArray[np.bool_], corners: NDArray[np.int64], extent: int, shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Which share of each square of `extent` pixels at `corners` (n, 2), in a picture of `shape`, is in `mask`, an overview of it. What
    lies beyond the picture is not in the mask."""
    sums = np.pad(mask.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32), ((1, 0), (1, 0)))
    factors = np.array(mask.shape) / np.array(shape)
    first = np.floor(corners * factors).astype(int)
    last = np.ceil((corners + extent) * factors).astype(int)
    (top, left), (bottom, right) = first.T, np.minimum(last, mask.shape).T
    inside = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
    return inside / (last - first).prod(1)
