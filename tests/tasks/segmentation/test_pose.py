"""Windows and objects after an element of a group."""

import numpy as np
import pytest

from gcsa.actions import transform_array
from gcsa.groups import group
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation.pose import TransformedImage, transform_objects
from gcsa.tasks.segmentation.stars import Objects, draw
from tests.tasks.segmentation.networks import picture


@pytest.mark.parametrize("name", ["c4", "d4"])
def test_windows_of_a_transformed_image(name: str) -> None:
    h, image = group(name), picture(12, 17)
    for g in h.exact_elements:
        source, expected = TransformedImage(ArrayImage(image), h, g), transform_array(image, h, g)
        assert source.shape == expected.shape[:2]
        for top, left, bottom, right in ((0, 0, *source.shape), (2, 3, 7, 11), (0, 5, 1, 6)):
            assert np.array_equal(source.window(top, left, bottom, right), expected[top:bottom, left:right])


@pytest.mark.parametrize("name", ["c4", "c8", "d4"])
def test_objects_move_with_their_label_map(name: str) -> None:
    h, shape, rng = group(name), (60, 85), np.random.default_rng(1)
    points, distances = rng.integers(0, shape, (6, 2)).astype(float), rng.uniform(3, 9, (6, 32)).astype(np.float32)
    objects = Objects(points, distances, np.linspace(0.9, 0.1, 6))
    labels = draw(objects, shape)
    for g in h.exact_elements:
        expected = transform_array(labels, h, g)
        result = draw(transform_objects(objects, shape, h, g), (expected.shape[0], expected.shape[1]))
        assert (result != expected).mean() < 1e-3  # the centre of a pixel may lie on a border
        assert len(np.unique(result)) == 7
