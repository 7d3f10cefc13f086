"""The orientation of a page by a network that cannot prefer one, before any line on it is found or read.

The page is reduced to two sizes, its contrast is made even, and it is cut into tiles of 96 x 96 pixels. `OrientationScorer`, a
G-CSA network of the group c4, gives each tile a score for each of the four orientations. Its output is regular: a rotated tile gives
the same scores, cyclically shifted, whatever the weights are. Tiles are taken as independent, so that the logarithms of their
probabilities add up; a tile without text has equal ones and says nothing. The grid of tiles rotates with the page, and so does all in
front of it: a rotated page gives the same probabilities, cyclically shifted, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import uniform_filter
from torch import Tensor, nn
from torch.nn import functional as F

from gcsa._utils.arrays import Array
from gcsa.models.gcsa import GCSA
from gcsa.weights import fill, read

TILE = 96
"""Pixels a side."""
SIDE = 2048
"""Pixels of the longer side of a page, which is seen at half of that too: most letters are 8 to 12 pixels high in one of the two."""
BAND = 512
"""Rows of a scan that are done at a time: a whole one of 5,000 x 3,500 pixels has 140 MB in float64."""
MOST_TILES = 48
"""Of each size, those with the most contrast."""
WINDOW = 63
"""Pixels a side, over which contrast is made even."""
LEAST_CONTRAST = 0.03
"""Of the range of a page's grey values: the standard deviation of a tile that is not blank."""
LIMIT = 4.0
"""Standard deviations."""
TEMPERATURE = 20.0
"""Of the sum over tiles, which are not independent (ADR 56)."""
SURE = 0.6
LEAST_TILES = 2
"""Tiles of which one orientation is as probable as `SURE`: with fewer, a page is blank."""
LEAST_PROBABILITY = 0.9
"""Of the most probable orientation: with less, somebody has to look at the page."""
BATCH = 32
WEIGHTS = Path(__file__).parent / "page_orientation"
"""In the package, for no user names them."""


class OrientationScorer(nn.Module):
    """Scores (B, 4) of tiles (B, 1, H, W) for the rotations by 0, 90, 180 and 270 degrees counter-clockwise, by which a tile may have
    been brought from upright.

    The scores are a regular field of c4: a tile rotated by 90 degrees has them shifted by one. H and W are multiples of 8.
    """

    def __init__(self, fields: int = 24) -> None:
        super().__init__()
        sizes: dict[str, Any] = dict(
            fields=fields, stem_fields=(fields // 4, fields // 2), stem_strides=(2, 2, 2), stem_norm="batch"
        )
        sizes |= dict(conv_depth=2, depth=1, num_heads=2, mlp_ratio=2, separable=True, low_pass=False)
        self.network = GCSA(in_chans=1, group="c4", num_classes=0, global_pool="", **sizes)
        self.scores = nn.Linear(fields, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.network.forward_features(x).mean((2, 3))
        return self.scores(pooled.unflatten(1, (4, -1))).squeeze(2)


@dataclass(frozen=True)
class Orientation:
    """How a page lies.

    Attributes:
        degrees: by which it is rotated counter-clockwise: 0, 90, 180 or 270.
        probabilities: of these four, in this order.
        blank: no tile shows text, so that the others are not to be relied on.
    """

    degrees: int
    probabilities: tuple[float, ...]
    blank: bool

    @property
    def doubtful(self) -> bool:
        """Whether the page is not to be rotated before somebody has looked at it. A blank page is not doubtful: it has no orientation."""
        return not self.blank and max(self.probabilities) < LEAST_PROBABILITY


@cache
def stored_scorer() -> OrientationScorer:
    """The network with the weights that come with gcsa."""
    return fill(OrientationScorer, read(WEIGHTS))


def find_orientation(grey: Array, scorer: nn.Module | None = None) -> Orientation:
    """The orientation of a page with the `grey` values (H, W), by `stored_scorer` or another one."""
    return orientation_of(tiles_of(grey), stored_scorer() if scorer is None else scorer)


def orientation_of(tiles: Tensor, scorer: nn.Module) -> Orientation:
    """The orientation of the page that `tiles` (N, 1, 96, 96) were cut from."""
    device = next(scorer.parameters()).device
    with torch.inference_mode(), torch.autocast(device.type, enabled=False):
        parts = [scorer(part.to(device)).log_softmax(1).cpu() for part in tiles.split(BATCH)]
    scores = torch.cat([torch.zeros(0, 4), *parts])
    probabilities = (scores.double().sum(0) / TEMPERATURE).softmax(0)
    surest = scores.exp().amax(1)
    blank = int((surest >= SURE).sum()) < LEAST_TILES
    return Orientation(90 * int(probabilities.argmax()), tuple(probabilities.tolist()), blank)


def tiles_of(grey: Array, side: int = SIDE) -> Tensor:
    """Tiles (N, 1, 96, 96), N from 0 on, of a page with the `grey` values (H, W): reduced or enlarged so that its longer side has `side`
    pixels, and half of that.

    They hold the difference to the mean of a neighbourhood in its standard deviations, at most 4, and 0 outside of the page.
    """
    height, width = (max(4, 4 * round(length * side / max(grey.shape) / 4)) for length in grey.shape)
    narrow = torch.empty((1, 1, len(grey), width), dtype=torch.float64)
    for start in range(0, len(grey), BAND):
        band = grey[start : start + BAND]
        narrow[:, :, start : start + BAND] = _resized(_as_image(band), len(band), width)
    page = _resized(narrow, height, width)
    del narrow
    return torch.cat([_with_contrast(*even_contrast(size)) for size in (F.avg_pool2d(page, 2), page)])


def _as_image(grey: Array) -> Tensor:
    """(1, 1, H, W) in float64, because in float32 the two sides of the antialiasing kernel differ by 2e-5."""
    return torch.from_numpy(np.ascontiguousarray(grey, dtype=np.float64))[None, None]


def _resized(image: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(image, (height, width), mode="bilinear", antialias=True, align_corners=False)


def even_contrast(page: Tensor) -> tuple[Tensor, Tensor]:
    """A page (1, 1, H, W) with even contrast, and as the difference to the mean of a neighbourhood, of the range of its grey values."""
    low, high = np.percentile(page.numpy(), (0.5, 99.5))
    difference = page.sub(low).div_(max(high - low, 1)).clamp_(0, 1)
    difference -= _local_mean(difference)
    deviation = _local_mean(difference.square()).clamp_min_(0).sqrt_().add_(LEAST_CONTRAST)
    return torch.div(difference, deviation, out=deviation).clamp_(-LIMIT, LIMIT), difference


def _with_contrast(even: Tensor, difference: Tensor) -> Tensor:
    """The tiles of a page `even` in contrast, at most MOST_TILES, where it was not blank before."""
    contrasts = _cut(difference).std((1, 2, 3))
    kept = contrasts >= LEAST_CONTRAST
    if kept.sum() > MOST_TILES:
        kept &= contrasts >= contrasts.sort(descending=True).values[MOST_TILES - 1]
    return _cut(even)[kept].float()


def _local_mean(page: Tensor) -> Tensor:
    """The mean over the part of a square of WINDOW pixels a side that lies on the page (1, 1, H, W)."""
    high, wide = (uniform_filter(np.ones(length), WINDOW, mode="constant") for length in page.shape[2:])
    mean = uniform_filter(page[0, 0].numpy(), WINDOW, mode="constant")
    for start in range(0, len(mean), BAND):
        mean[start : start + BAND] /= np.outer(high[start : start + BAND], wide)
    return torch.from_numpy(mean)[None, None]


def _cut(page: Tensor) -> Tensor:
    """Tiles (N, 1, 96, 96) of a page (1, 1, H, W), H and W even, with as many zeros on either side of it."""
    vertical, horizontal = (-length % TILE // 2 for length in page.shape[2:])
    page = F.pad(page, (horizontal, horizontal, vertical, vertical))
    return page.unfold(2, TILE, TILE).unfold(3, TILE, TILE).reshape(-1, 1, TILE, TILE)
