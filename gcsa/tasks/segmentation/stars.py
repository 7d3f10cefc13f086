"""Objects as star-convex polygons (Schmidt et al. 2018, Cell detection with star-convex polygons, arXiv:1806.03535).

For each pixel, a network gives its depth in an object and the distance to the object's border along R directions. The package
`stardist` casts the rays and suppresses overlapping polygons. Three measures keep these steps from preferring a side of the image:

- Candidates are the local maxima of the object map. An object has a few of them, wherever its pixels are cut.
- Candidates are ordered by score, then by the distance to the centre of the image, then by the sum of their rays; not by position.
- Polygons are passed on in units of 1 / `FINENESS` pixels, since the package compares them on whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gcsa._utils.errors import MissingExtraError, UserError
from gcsa.images.windows import Windowed, row_windows

Labels = NDArray[np.int32]
"""A label map (H, W): 0 is background, each object has a number of its own from 1 on."""

FINENESS = 64
FAST = (1, 1, 0)
"""Of StarDist's suppression: with a tree of the centres, with bounding boxes, without words."""
SHORTEST = 0.5
"""Least length of a ray in pixels."""
FEWEST_SHARING, SPECK = 3, 0.1
"""Of `check_numbers`: one object in two pieces is no binary mask."""


def check_installed() -> None:
    """Raises MissingExtraError without the package `stardist`."""
    _compiled()


@cache
def _compiled() -> Any:
    """The compiled functions of `stardist`. The package itself is imported for training alone: it imports numba, which took most of the time
    to a first answer."""
    try:
        package = find_spec("stardist")
        if package is None or package.submodule_search_locations is None:
            raise ImportError("no module named 'stardist'")
        folder = Path(package.submodule_search_locations[0]) / "lib"
        spec = FileFinder(str(folder), (ExtensionFileLoader, EXTENSION_SUFFIXES)).find_spec("stardist2d")
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} has no stardist2d for this Python")
        compiled = module_from_spec(spec)
        spec.loader.exec_module(compiled)
    except ImportError as error:
        raise MissingExtraError(
            f"instances need StarDist's geometry, which cannot be imported ({error}): pip install gcsa-vit[dense]",
            "stardist.missing",
        ) from error
    return compiled


def check_numbers(masks: Iterable[Labels]) -> None:
    """Raises UserError for masks that number no objects, such as binary ones and those of classes: where at least `FEWEST_SHARING` pieces, and
    most of all pieces, share their number with another piece of the mask.

    Pieces of less than `SPECK` times the largest of their number do not count.
    """
    from skimage.measure import label

    sharing = total = 0
    for mask in masks:
        pieces = label(mask, background=0, connectivity=2)
        _, first, areas = np.unique(pieces, return_index=True, return_counts=True)
        numbers, of = np.unique(mask.ravel()[first], return_inverse=True)
        largest = np.zeros(len(numbers), np.int64)
        np.maximum.at(largest, of, areas)
        counted = (numbers[of] != 0) & (areas >= SPECK * largest[of])
        count = np.bincount(of[counted], minlength=len(numbers))
        sharing, total = sharing + int(count[count > 1].sum()), total + int(count.sum())
    if sharing >= FEWEST_SHARING and 2 * sharing > total:
        raise UserError(
            f"{sharing} of {total} pieces share their number with another piece, as in a binary mask or one of classes: give each "
            "object a number of its own, or set model.output=classes",
            "mask.pieces",
        )


@dataclass(frozen=True)
class Objects:
    """Star-convex polygons: `points` (n, 2), their centres as row and column in pixels; `distances` (n, R), float32, along
    the directions of `Group.rays`; `scores` (n,), from 0 to 1."""

    points: NDArray[np.float64]
    distances: NDArray[np.float32]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, rows: Any) -> Objects:
        """Those that an index array, a mask or a slice chooses."""
        return Objects(self.points[rows], self.distances[rows], self.scores[rows])

    @classmethod
    def joined(cls, parts: Sequence[Objects]) -> Objects:
        """All of at least one part."""
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("points", "distances", "scores"))
        )

    def shifted(self, rows: int, columns: int) -> Objects:
        """The objects, shifted down and to the right by so many pixels."""
        return Objects(self.points + np.array([rows, columns]), self.distances, self.scores)

    def resized(self, shape: tuple[int, int], new: tuple[int, int]) -> Objects:
        """The objects of an image of `shape` after it is resized to the shape `new`."""
        if shape == new:
            return self
        factors = np.array(new) / np.array(shape)
        distances = (self.distances * factors.mean()).astype(np.float32)
        return Objects((self.points + 0.5) * factors - 0.5, distances, self.scores)

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Corners (n, 2), row and column, of squares around the centres that hold the polygons and a pixel more."""
        reach = self.distances.max(1, initial=0)[:, None].astype(np.float64) + 1
        return self.points - reach, self.points + reach

    def outlines(self) -> NDArray[np.float64]:
        """The corners (n, R, 2) of the polygons, as row and column."""
        angles = 2 * np.pi * np.arange(self.distances.shape[1]) / self.distances.shape[1]
        directions = np.stack([np.sin(angles), np.cos(angles)], -1)
        return self.points[:, None] + self.distances[:, :, None] * directions


def median_diameter(masks: Iterable[Labels]) -> float | None:
    """The median over all objects of the diameter in pixels of the disc of their area; None without any object."""
    return disc_diameter(np.concatenate([np.unique(mask[mask > 0], return_counts=True)[1] for mask in masks]))


def disc_diameter(areas: NDArray[Any]) -> float | None:
    """The median diameter in pixels of discs of these areas; None without any."""
    return round(float(np.median(2 * np.sqrt(areas / np.pi))), 1) if len(areas) else None


def numbered(labels: Labels) -> Labels:
    """The same objects, numbered from 1 on without gaps, in the order of their labels.

    `stardist` needs this: it counts labels modulo 65536, and makes tables as long as the largest of them.
    """
    values, ranks = np.unique(labels, return_inverse=True)
    return (ranks.reshape(labels.shape) + int(not values.size or values[0] != 0)).astype(np.int32)


def star_targets(labels: Labels, rays: int) -> Tensor:
    """The targets of a network for a label map (H, W): (1 + rays, H, W), float32.

    Channel 0 is the distance to the object's border, 1 at the deepest pixel and 0 in the background. The others are the distances
    in pixels along each direction, 0 in the background. Rays end at the border of the map. For depths an object goes on beyond
    it, unless it covers all of the map.
    """
    from stardist.geometry import star_dist
    from stardist.utils import edt_prob

    if not labels.any():
        return torch.zeros(1 + rays, *labels.shape)
    labels = numbered(labels)
    alone = int(labels.min() == labels.max())  # of which stardist would warn
    height, width = labels.shape
    depth = edt_prob(np.pad(labels, alone))[None, alone : alone + height, alone : alone + width]
    distances = star_dist(labels, rays, mode="cpp").transpose(2, 0, 1)
    return torch.from_numpy(np.concatenate([depth, distances]).astype(np.float32))


def find_candidates(maps: Tensor, prob_thresh: float) -> Objects:
    """The polygons of the local maxima of the object map, above `prob_thresh` in probability.

    maps: (1 + R, H, W), the logit of the object map and distances in pixels.
    """
    maps = maps.detach()
    logits = maps[0]
    highest = F.max_pool2d(logits[None], 3, stride=1, padding=1)[0]
    limit = torch.logit(torch.tensor(prob_thresh, dtype=logits.dtype)).item()
    rows, columns = ((logits >= highest) & (logits > limit)).nonzero(as_tuple=True)
    distances = maps[1:, rows, columns].T.clamp_min(SHORTEST)
    points = torch.stack([rows, columns], 1).double()
    return Objects(
        points.cpu().numpy(), distances.float().cpu().numpy(), logits[rows, columns].double().sigmoid().cpu().numpy()
    )


def suppress(objects: Objects, nms_thresh: float, shape: tuple[int, int]) -> Objects:
    """The objects that none of a higher score overlaps by more than `nms_thresh` of the smaller of both, highest score first.

    shape: height and width of the image.
    """
    if not len(objects):
        return objects
    centre = (np.array(shape) - 1) / 2
    away = ((objects.points - centre) ** 2).sum(1)
    sums = objects.distances.sum(1, dtype=np.float64)
    objects = objects[np.lexsort((sums, away, -objects.scores))]
    polygons = ((part * FINENESS).astype(np.float32) for part in (objects.distances, objects.points))
    kept = _compiled().c_non_max_suppression_inds(*polygons, *FAST, np.float32(nms_thresh))
    return objects[np.asarray(kept, bool)]


class DrawnObjects:
    """The label map (H, W) of `objects`, numbered in their order; where two overlap, the earlier one is on top. A window is drawn when
    it is asked for, to the last bit as in the whole.

    shape: height and width.
    """

    def __init__(self, objects: Objects, shape: tuple[int, int]) -> None:
        self.objects, self.shape = objects, shape

    def window(self, top: int, left: int, bottom: int, right: int) -> Labels:
        from skimage.draw import polygon

        labels: Labels = np.zeros((bottom - top, right - left), np.int32)
        low, high = self.objects.bounds()
        nearby = np.flatnonzero(((high >= (top, left)) & (low < (bottom, right))).all(1))[::-1]
        for number, outline in zip(nearby + 1, self.objects[nearby].outlines(), strict=True):
            # In the coordinates of the whole, since shifted ones would be rounded in another way.
            rows, columns = polygon(outline[:, 0], outline[:, 1], (bottom, right))
            inside = (rows >= top) & (columns >= left)
            labels[rows[inside] - top, columns[inside] - left] = number
        return labels


def draw(objects: Objects, shape: tuple[int, int]) -> Labels:
    """The whole label map (H, W) of `DrawnObjects`."""
    return DrawnObjects(objects, shape).window(0, 0, *shape)


class Renumbered:
    """A label map in which number i becomes `numbers[i]`, window by window."""

    def __init__(self, label_map: Windowed, numbers: Labels) -> None:
        self.label_map, self.numbers, self.shape = label_map, numbers, label_map.shape

    def window(self, top: int, left: int, bottom: int, right: int) -> Labels:
        return self.numbers[self.label_map.window(top, left, bottom, right)]


def pixel_counts(label_map: Windowed, count: int) -> NDArray[np.int64]:
    """The pixels of each number from 0 to `count` - 1."""
    total = np.zeros(count, np.int64)
    for _, labels in row_windows(label_map):
        total += np.bincount(labels.ravel(), minlength=count)
    return total
