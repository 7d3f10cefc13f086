"""Images and objects after an element of a group: a segmenter reads every image in its canonical pose (`gcsa.symmetry`).

An equivariant network gives the same answers in every pose, up to the rounding of its sums. Rounding decides where the centre of
a pixel lies on the border of a polygon, to within the last bits: about one pixel in a hundred images. Reading each image in its
canonical pose removes this dependence. The result is transformed back.
"""

from __future__ import annotations

import numpy as np

from gcsa._utils.arrays import Array
from gcsa.actions import transform_array, transform_points, transformed_shape
from gcsa.groups import Group
from gcsa.images.windows import Windowed, WindowedImage
from gcsa.tasks.segmentation.stars import Objects


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

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return self.image.percentiles(low, high)


def transform_objects(objects: Objects, shape: tuple[int, int], group: Group, g: int) -> Objects:
    """Objects in an image of `shape` after the exact element g."""
    distances = np.empty_like(objects.distances)
    distances[:, group.rays(distances.shape[1])[g]] = objects.distances
    return Objects(transform_points(objects.points, shape, group, g), distances, objects.scores)
