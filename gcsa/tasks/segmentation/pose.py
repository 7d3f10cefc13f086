"""The pose in which a picture is read, so that not even a last bit depends on how it lay.

An equivariant network gives the same answers in every pose, up to the rounding of its sums. Where a pixel's centre lies within
that of a polygon's border (of one image in a hundred, in one pose or two, a pixel), rounding would decide. So a picture is
turned and mirrored, by an exact element of the network's own group, until its first moments about its centre are the largest,
rows first; it is read like that, and what was found is turned back. The moments of a turned picture are turned, so that any of
its poses ends in the same one, unless the moments are level, as of symmetric pictures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gcsa._utils.arrays import Array
from gcsa.groups import Group
from gcsa.images.windows import WindowedImage, strips
from gcsa.tasks.segmentation.stars import Objects


def moments(source: WindowedImage) -> NDArray[np.float64]:
    """First moments (row, column) of a picture about its centre, summed over its channels."""
    height, width = source.shape
    total = np.zeros(2)
    columns = np.arange(width) - (width - 1) / 2
    for top, bottom in strips(height, 1):
        values = source.window(top, 0, bottom, width).sum(2, dtype=np.float64)
        rows = np.arange(top, bottom) - (height - 1) / 2
        total += ((rows[:, None] * values).sum(), (values * columns).sum())
    return total


def reading_pose(source: WindowedImage, group: Group) -> int:
    """The exact element of `group` that takes the picture into the pose in which it is read."""
    lie = moments(source)
    return max(group.exact_elements, key=lambda g: tuple(group.array_matrix(g).round() @ lie))


class TransformedImage:
    """A picture after an exact element g of a group; a `WindowedImage`."""

    def __init__(self, source: WindowedImage, group: Group, g: int) -> None:
        self.source, self.group, self.g = source, group, g
        matrix = group.array_matrix(g).round()
        self.shape = source.shape if matrix[0, 0] else (source.shape[1], source.shape[0])

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        corners = moved(np.array([(top, left), (bottom - 1, right - 1)]), self.shape, self.group, self._back())
        (first, second), (last, end) = np.sort(corners, axis=0).round().astype(int)
        return turned(self.source.window(first, second, last + 1, end + 1), self.group, self.g)

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return self.source.percentiles(low, high)

    def _back(self) -> int:
        return int(self.group.inverse[self.g])


def turned(picture: Array, group: Group, g: int) -> Array:
    """An array (H, W, ...) after the exact element g; a view."""
    flip, turn = divmod(g, group.rotations)
    return np.rot90(picture[:, ::-1] if flip else picture, 4 * turn // group.rotations)


def moved(points: NDArray[np.float64], shape: tuple[int, int], group: Group, g: int) -> NDArray[np.float64]:
    """Points (n, 2), row and column in a picture of `shape`, after the exact element g about its centre."""
    matrix = group.array_matrix(g).round()
    centre = (np.array(shape) - 1) / 2
    return (points - centre) @ matrix.T + abs(matrix) @ centre


def objects_after(objects: Objects, shape: tuple[int, int], group: Group, g: int) -> Objects:
    """Objects in a picture of `shape` after the exact element g."""
    distances = np.empty_like(objects.distances)
    distances[:, group.rays(distances.shape[1])[g]] = objects.distances
    return Objects(moved(objects.points, shape, group, g), distances, objects.scores)
