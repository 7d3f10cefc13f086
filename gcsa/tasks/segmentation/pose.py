"""The canonical pose of an image, in which every segmenter reads it.

An equivariant network gives the same answers in every pose, up to the rounding of its sums. Rounding decides where the centre of
a pixel lies on the border of a polygon, to within the last bits: about one pixel in a hundred images. The canonical pose removes
this dependence. It is the pose, among those of the exact elements of the network's group, in which the first moments of the
image about its centre are largest, rows before columns. The image is read in this pose, and the result is transformed back.
All poses of one image have the same canonical pose, unless its moments are tied, as in symmetric images.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gcsa._utils.arrays import Array
from gcsa.groups import Group
from gcsa.images.windows import Windowed, WindowedImage, strips
from gcsa.tasks.segmentation.stars import Objects


def moments(image: WindowedImage) -> NDArray[np.float64]:
    """The first moments (row, column) of an image about its centre, summed over its channels."""
    height, width = image.shape
    total = np.zeros(2)
    columns = np.arange(width) - (width - 1) / 2
    for top, bottom in strips(height, 1):
        values = image.window(top, 0, bottom, width).sum(2, dtype=np.float64)
        rows = np.arange(top, bottom) - (height - 1) / 2
        total += ((rows[:, None] * values).sum(), (values * columns).sum())
    return total


def canonical_pose(image: WindowedImage, group: Group) -> int:
    """The exact element of `group` that takes an image to its canonical pose."""
    if len(group.exact_elements) == 1:
        return group.exact_elements[0]
    first = moments(image)
    return max(group.exact_elements, key=lambda g: tuple(group.array_matrix(g).round() @ first))


class TransformedWindows:
    """An array after the exact element g of a group; each window is transformed as it is read."""

    def __init__(self, image: Windowed, group: Group, g: int) -> None:
        self.image, self.group, self.g = image, group, g
        self.shape = transformed_shape(image.shape, group, g)

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        corners = np.array([(top, left), (bottom - 1, right - 1)])
        corners = transform_points(corners, self.shape, self.group, int(self.group.inverse[self.g]))
        (first, second), (last, end) = np.sort(corners, axis=0).round().astype(int)
        return transform_array(self.image.window(first, second, last + 1, end + 1), self.group, self.g)


class TransformedImage(TransformedWindows):
    """`TransformedWindows` of an image; a `WindowedImage`."""

    image: WindowedImage

    def __init__(self, image: WindowedImage, group: Group, g: int) -> None:
        super().__init__(image, group, g)

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return self.image.percentiles(low, high)


def transformed_shape(shape: tuple[int, int], group: Group, g: int) -> tuple[int, int]:
    """The shape of an image of `shape` after the exact element g."""
    return shape if group.array_matrix(g).round()[0, 0] else (shape[1], shape[0])


def transform_array(values: Array, group: Group, g: int) -> Array:
    """An array (H, W, ...) after the exact element g; a view."""
    flip, rotation = divmod(g, group.rotations)
    return np.rot90(values[:, ::-1] if flip else values, 4 * rotation // group.rotations)


def transform_points(points: NDArray[np.float64], shape: tuple[int, int], group: Group, g: int) -> NDArray[np.float64]:
    """Points (n, 2), row and column in an image of `shape`, after the exact element g about its centre."""
    matrix = group.array_matrix(g).round()
    centre = (np.array(shape) - 1) / 2
    return (points - centre) @ matrix.T + abs(matrix) @ centre


def transform_objects(objects: Objects, shape: tuple[int, int], group: Group, g: int) -> Objects:
    """Objects in an image of `shape` after the exact element g."""
    distances = np.empty_like(objects.distances)
    distances[:, group.rays(distances.shape[1])[g]] = objects.distances
    return Objects(transform_points(objects.points, shape, group, g), distances, objects.scores)
