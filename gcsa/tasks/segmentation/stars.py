"""Objects as star-convex polygons (Schmidt et al. 2018, Cell detection with star-convex polygons, arXiv:1806.03535).

A network says of each pixel how deep it lies in an object, and how far the object reaches along R directions. Ray casting,
the suppression of polygons that overlap and their drawing are those of the `stardist` package; what is added here is that no
step of it prefers a side of the image:

- candidates are the local maxima of the object map, so that an object has a few of them wherever its pixels are cut;
- they are ordered by score, then by the distance to the centre of the image, then by the sum of their rays, and not by place;
- polygons are handed over in units of 1 / `FINENESS` pixels, since the package compares them on whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gcsa._utils.errors import MissingExtraError, UserError

Labels = NDArray[np.int32]
"""A label map (H, W): 0 is background, each object has a number of its own from 1 on."""

FINENESS = 64
SHORTEST = 0.5
"""Pixels that a ray has at least."""


def check_installed() -> None:
    """Raises ImportError where the `stardist` package is missing."""
    try:
        import stardist.geometry  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "instances need StarDist's geometry, which is not installed: pip install gcsa-vit[dense]"
        ) from error


def check_objects(labels: Labels) -> None:
    """Raises ValueError for a mask of 0 and 255 in several pieces, whose objects have no numbers."""
    from skimage.measure import label

    if labels.max(initial=0) == 255 and np.isin(labels, (0, 255)).all() and label(labels, connectivity=2).max() > 1:
        raise UserError(
            "its mask holds several objects, all with the number 255: give each a number of its own, or set model.task=masks"
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

    def moved(self, rows: int, columns: int) -> Objects:
        """The same, so many pixels further down and to the right."""
        return Objects(self.points + np.array([rows, columns]), self.distances, self.scores)

    def outlines(self) -> NDArray[np.float64]:
        """The corners (n, R, 2) of the polygons, as row and column."""
        angles = 2 * np.pi * np.arange(self.distances.shape[1]) / self.distances.shape[1]
        directions = np.stack([np.sin(angles), np.cos(angles)], -1)
        return self.points[:, None] + self.distances[:, :, None] * directions


def numbered(labels: Labels) -> Labels:
    """The same objects, numbered from 1 on without gaps, in the order of their labels: what `stardist` takes, which else counts
    labels modulo 65536, or makes tables as long as the largest of them."""
    values, places = np.unique(labels, return_inverse=True)
    return (places.reshape(labels.shape) + int(not values.size or values[0] != 0)).astype(np.int32)


def star_targets(labels: Labels, rays: int) -> Tensor:
    """What a network should say of a label map (H, W): (1 + rays, H, W), float32.

    Channel 0 is the distance to the object's border, 1 at the deepest pixel and 0 in the background; then the distances in
    pixels along each direction, 0 in the background. Rays end where the map does; depths are those of an object that goes on
    there, unless it is all of the map.
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


def candidates(maps: Tensor, threshold: float) -> Objects:
    """The polygons of the local maxima of the object map, above `threshold` in probability.

    maps: (1 + R, H, W), the logit of the object map and distances in pixels.
    """
    maps = maps.detach()
    logits = maps[0]
    highest = F.max_pool2d(logits[None], 3, stride=1, padding=1)[0]
    limit = torch.logit(torch.tensor(threshold, dtype=logits.dtype)).item()
    rows, columns = ((logits >= highest) & (logits > limit)).nonzero(as_tuple=True)
    distances = maps[1:, rows, columns].T.clamp_min(SHORTEST)
    points = torch.stack([rows, columns], 1).double()
    return Objects(
        points.cpu().numpy(), distances.float().cpu().numpy(), logits[rows, columns].double().sigmoid().cpu().numpy()
    )


def suppress(objects: Objects, overlap: float, shape: tuple[int, int]) -> Objects:
    """Those that no object of a higher score covers by more than `overlap` of the smaller of both, the highest score first.

    shape: height and width of the image.
    """
    from stardist.nms import non_maximum_suppression_inds

    if not len(objects):
        return objects
    centre = (np.array(shape) - 1) / 2
    away = ((objects.points - centre) ** 2).sum(1)
    sums = objects.distances.sum(1, dtype=np.float64)
    objects = objects[np.lexsort((sums, away, -objects.scores))]
    kept = non_maximum_suppression_inds(
        objects.distances * FINENESS, objects.points * FINENESS, None, thresh=overlap, verbose=0
    )
    return objects[np.asarray(kept, bool)]


def draw(objects: Objects, shape: tuple[int, int]) -> Labels:
    """The label map (H, W) of `objects`, numbered in their order; where two overlap, the earlier one is seen."""
    from skimage.draw import polygon

    labels: Labels = np.zeros(shape, np.int32)
    for number, outline in reversed(list(enumerate(objects.outlines(), 1))):
        rows, columns = polygon(outline[:, 0], outline[:, 1], shape)
        labels[rows, columns] = number
    return labels
