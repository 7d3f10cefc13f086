"""All poses of a picture are read as one: label maps are the same to the last bit, in float32 as well."""

from typing import Any

import numpy as np
import pytest
import torch

from gcsa._utils.arrays import Array
from gcsa.groups import group
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.pose import TransformedImage, objects_after, reading_pose, turned
from gcsa.tasks.segmentation.stars import Objects, draw
from gcsa.tasks.segmentation.tiles import segment
from gcsa.testing import randomize

GROUPS = ("c1", "c2", "c4", "c8", "d1", "d2", "d4", "d8")


def picture(height: int, width: int, dtype: Any = np.uint8) -> Array:
    return (np.random.default_rng(0).random((height, width, 3)) * 255).astype(dtype)


def discs(count: int, shape: tuple[int, int]) -> Objects:
    rng = np.random.default_rng(1)
    points = rng.integers(0, shape, (count, 2)).astype(float)
    return Objects(points, rng.uniform(3, 9, (count, 32)).astype(np.float32), np.sort(rng.random(count))[::-1])


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_all_poses_end_in_one(name: str, dtype: Any) -> None:
    h, still = group(name), picture(12, 17, dtype)
    ends = set()
    for g in h.exact_elements:
        lying = turned(still, h, g)
        ends.add(turned(lying, h, reading_pose(ArrayImage(lying), h)).tobytes())
    assert len(ends) == 1


def test_without_a_group_a_picture_stays_as_it_is() -> None:
    for k in range(4):
        assert reading_pose(ArrayImage(np.rot90(picture(12, 17), k)), group("c1")) == 0


@pytest.mark.parametrize("name", ["c4", "d4"])
def test_windows_of_a_turned_picture(name: str) -> None:
    h, still = group(name), picture(12, 17)
    for g in h.exact_elements:
        source, expected = TransformedImage(ArrayImage(still), h, g), turned(still, h, g)
        assert source.shape == expected.shape[:2]
        for top, left, bottom, right in ((0, 0, *source.shape), (2, 3, 7, 11), (0, 5, 1, 6)):
            assert np.array_equal(source.window(top, left, bottom, right), expected[top:bottom, left:right])


@pytest.mark.parametrize("name", ["c4", "c8", "d4"])
def test_objects_turn_with_their_label_map(name: str) -> None:
    h, shape = group(name), (60, 85)
    still = discs(6, shape)
    labels = draw(still, shape)
    for g in h.exact_elements:
        expected = turned(labels, h, g)
        found = draw(objects_after(still, shape, h, g), (expected.shape[0], expected.shape[1]))
        assert (found != expected).mean() < 1e-3  # a pixel's centre may lie on a border
        assert len(np.unique(found)) == 7


@pytest.mark.parametrize("shape", [(64, 48), (61, 50)], ids=str)
@pytest.mark.parametrize("task", ["instances", "masks"])
def test_label_maps_are_the_same_to_the_last_bit(shape: tuple[int, int], task: str) -> None:
    """Numbers included, in tiles too; maps of float32 alone are not."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(fields=[2, 2], depths=[1, 1], heads=[1, 1], radii=[1, 1], stem_fields=[2], rays=8)
    segmenter = randomize(Segmenter(task=task, threshold=0.3, overlap=0.2, **sizes)).eval()
    assert isinstance(segmenter, Segmenter)
    head: Any = segmenter.network.head
    with torch.no_grad():
        head.out.bias[: head.count] -= segmenter(torch.rand(1, 3, 64, 64))[:, : head.count].mean((0, 2, 3))
    still, h = picture(*shape), segmenter.group
    whole, tiled = (segment(segmenter, ArrayImage(still), side) for side in (None, 20))
    assert len(np.unique(whole.labels)) > 1
    for g in h.exact_elements:
        lying = ArrayImage(turned(still, h, g))
        assert np.array_equal(segment(segmenter, lying).labels, turned(whole.labels, h, g))
        again = segment(segmenter, lying, 20)
        assert np.array_equal(again.labels, turned(tiled.labels, h, g))
        if again.objects is not None and whole.objects is not None:
            assert list(again.objects.scores) == list(tiled.objects.scores if tiled.objects else [])
    with torch.inference_mode():
        image = segmenter.tensor(still)
        differ = [
            not torch.equal(segmenter.maps(h.act_on_grid(image, g))[0], h.act_on_grid(segmenter.maps(image)[0], g))
            for g in (1, 2, 4)
        ]
    assert any(differ)
