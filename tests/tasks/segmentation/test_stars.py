"""Star-convex polygons: what was drawn comes back, in every pose, whatever the order and the number of the objects."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from gcsa.actions import act
from gcsa.groups import group
from gcsa.tasks.segmentation import stars
from gcsa.tasks.segmentation.metrics import changes
from gcsa.tasks.segmentation.stars import (
    FINENESS,
    Objects,
    check_installed,
    check_numbers,
    draw,
    find_candidates,
    numbered,
    star_targets,
    suppress,
)
from tests.errors import raises

RAYS = 32
D4 = group("d4")
Ellipse = tuple[float, float, float, float]
"""Row and column of the centre, and the half axes along them."""


def drawn(shape: tuple[int, int], ellipses: list[Ellipse]) -> np.ndarray:
    """A label map; a later object lies on an earlier one."""
    rows, columns = np.indices(shape)
    labels = np.zeros(shape, np.int32)
    for number, (row, column, high, wide) in enumerate(ellipses, 1):
        labels[((rows - row) / high) ** 2 + ((columns - column) / wide) ** 2 <= 1] = number
    return labels


@pytest.mark.parametrize("numbers", [(0, 1), (0, 255), (1, 2), (3, 7)], ids=str)
def test_masks_that_number_no_objects_are_refused(numbers: tuple[int, int]) -> None:
    """Whatever the numbers are: those of a binary mask, or of classes, also without a 0."""
    three = drawn((40, 60), [(10, 10, 5, 5), (30, 40, 5, 5), (10, 40, 5, 5)])
    binary = np.where(three > 0, numbers[1], numbers[0])
    with raises("mask.pieces"):
        check_numbers([binary])
    with raises("mask.pieces"):
        check_numbers([np.where(three == 1, 0, binary), np.where(three == 2, 0, binary)])
    with raises("mask.pieces"):  # two classes of pixels
        check_numbers([np.hstack([np.where(three > 0, 1, 0), np.where(three > 0, 2, 0)])])


def test_objects_may_be_in_pieces() -> None:
    """One that another covers, and specks at the border of one, are no binary mask."""
    three = drawn((40, 60), [(10, 10, 5, 5), (30, 40, 5, 5), (10, 40, 5, 5)])
    check_numbers([three, 255 * (three == 1), np.where(three > 0, 253 + three, 0), np.zeros_like(three)])
    check_numbers([np.where(three == 3, 0, 255 * (three > 0))])
    check_numbers([np.where(three == 2, 1, three), three])
    specks = np.where(three == 3, 0, three)
    specks[::8, ::8] = np.where(specks[::8, ::8] == 0, 1, specks[::8, ::8])
    check_numbers([specks])


def as_maps(targets: Tensor) -> Tensor:
    """Outputs of a network that says what the targets say."""
    maps = targets.double()
    maps[0] = torch.logit(maps[0], eps=1e-6)
    return maps


def found(maps: Tensor, prob_thresh: float = 0.5, nms_thresh: float = 0.4) -> np.ndarray:
    shape = (maps.shape[1], maps.shape[2])
    return draw(suppress(find_candidates(maps, prob_thresh), nms_thresh, shape), shape)


def overlaps(labels: np.ndarray, others: np.ndarray) -> list[float]:
    """For each object of `labels` the largest intersection over union with one of `others`."""
    best = []
    for number in np.unique(labels[labels > 0]):
        mask = labels == number
        unions = [(mask & (others == k)).sum() / (mask | (others == k)).sum() for k in np.unique(others[others > 0])]
        best.append(max(unions, default=0.0))
    return best


SCENES: dict[str, tuple[tuple[int, int], list[Ellipse]]] = {
    "a disc": ((40, 40), [(19, 21, 9, 9)]),
    "discs and ellipses": ((64, 80), [(14, 15, 9, 9), (40, 20, 15, 7), (20, 55, 6, 18), (50, 60, 11, 9)]),
    "touching": ((40, 64), [(20, 15, 10, 10), (20, 36, 10, 10), (20, 54, 10, 7)]),
    "one on another": ((48, 48), [(20, 18, 12, 12), (28, 32, 10, 10)]),
    "on a corner": ((40, 40), [(0, 0, 12, 12), (39, 39, 9, 12)]),
    "on the sides": ((40, 50), [(20, 0, 9, 9), (0, 25, 8, 11), (39, 30, 10, 8), (15, 49, 9, 8)]),
    "over the whole image": ((24, 30), [(12, 15, 99, 99)]),
    "small": ((20, 20), [(5, 5, 2, 2), (12, 14, 3, 2.5)]),
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_was_drawn_comes_back(scene: str) -> None:
    shape, ellipses = SCENES[scene]
    labels = drawn(shape, ellipses)
    back = found(as_maps(star_targets(labels, RAYS)))
    assert back.dtype == np.int32
    assert back.max() == labels.max() == len(ellipses)
    assert min(overlaps(labels, back)) > 0.8


def test_an_image_without_objects() -> None:
    labels = np.zeros((12, 9), np.int32)
    targets = star_targets(labels, 8)
    assert targets.shape == (9, 12, 9)
    assert targets.dtype == torch.float32
    assert not targets.any()
    assert not found(as_maps(targets)).any()
    assert len(find_candidates(as_maps(targets), 0.1)) == 0


def test_targets_are_depths_and_distances() -> None:
    """A square of 9: 5 pixels deep in the middle; the border lies between the last pixel and the next."""
    labels = np.zeros((15, 15), np.int32)
    labels[3:12, 3:12] = 7
    targets = star_targets(labels, 8)
    assert targets[0, 7, 7] == 1
    assert targets[0, 3, 7].item() == pytest.approx(1 / 5)
    assert (targets[:, labels == 0] == 0).all()
    right, down, left, up = targets[1:, 5, 9][::2].tolist()
    assert (right, down, left, up) == (2.5, 6.5, 6.5, 2.5)
    assert targets[2, 7, 7].item() == pytest.approx(4.5 * 2**0.5, abs=0.5)


def test_targets_at_the_border_of_an_image() -> None:
    """Rays end there. An object goes on beyond it as far as depth is concerned, unless it is all of the image."""
    labels = np.zeros((9, 20), np.int32)
    labels[:, :8] = 1
    targets = star_targets(labels, 4)
    assert targets[0, 4].tolist() == [1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, *12 * [0]]
    assert targets[1:, 4, 2].tolist() == [5.5, 4.5, 2.5, 4.5]
    whole = star_targets(np.ones((5, 5), np.int32), 4)
    assert whole[0, 2].tolist() == pytest.approx([1 / 3, 2 / 3, 1, 2 / 3, 1 / 3])
    assert whole[1:, 2, 2].tolist() == [2.5, 2.5, 2.5, 2.5]


def test_directions_are_those_of_the_group() -> None:
    """Ray k of an outline points to (row, column) = (sin, cos)(2 pi k / rays)."""
    objects = Objects(np.array([[10.0, 20.0]]), np.arange(1, 9, dtype=np.float32)[None], np.ones(1))
    outline = objects.outlines()[0]
    assert np.allclose(outline[0], [10, 21])
    assert np.allclose(outline[2], [13, 20])
    assert np.allclose(outline[4], [10, 15])
    assert np.allclose(outline[6], [3, 20])


@pytest.mark.parametrize("labels", [[1, 2], [1, 65536 + 1], [70000, 65536], [2**31 - 1, 3]], ids=str)
def test_labels_may_be_any_numbers(labels: list[int]) -> None:
    """`stardist` counts them modulo 65536, and makes a table as long as the largest."""
    plain = drawn((24, 40), [(12, 10, 8, 8), (12, 27, 8, 8)])
    large = np.zeros_like(plain)
    for number, label in enumerate(labels, 1):
        large[plain == number] = label
    assert torch.equal(star_targets(large, 8), star_targets(plain, 8))


def test_numbered() -> None:
    assert numbered(np.array([[0, 9], [4, 9]], np.int32)).tolist() == [[0, 2], [1, 2]]
    assert numbered(np.array([[9, 9], [4, 9]], np.int32)).tolist() == [[2, 2], [1, 2]]
    assert numbered(np.zeros((2, 1), np.int32)).tolist() == [[0], [0]]
    assert numbered(np.zeros((0, 3), np.int32)).shape == (0, 3)
    assert numbered(np.array([[5]], np.int64)).dtype == np.int32


def noisy(seed: int, shape: tuple[int, int] = (60, 60)) -> Tensor:
    """Maps of a random label map, as a network would say them that is not quite right."""
    rng = np.random.default_rng(seed)
    ellipses = [tuple(rng.uniform([0, 0, 4, 4], [*shape, 11, 11])) for _ in range(14)]
    maps = as_maps(star_targets(drawn(shape, ellipses), RAYS))
    noise = torch.randn(maps.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return maps + torch.tensor([0.5] + RAYS * [0.7])[:, None, None] * noise


def moved(maps: Tensor, g: int) -> Tensor:
    return torch.cat([act(maps[None, :1], D4, g, "image"), act(maps[None, 1:], D4, g, "rays")], 1)[0]


def turned_back(labels: np.ndarray, g: int) -> np.ndarray:
    return D4.act_on_grid(torch.from_numpy(labels.copy()), int(D4.inverse[g])).numpy()


@pytest.mark.parametrize("shape", [(60, 60), (48, 71), (33, 50)])
@pytest.mark.parametrize("seed", range(4))
def test_the_objects_of_turned_maps_are_the_turned_objects(seed: int, shape: tuple[int, int]) -> None:
    """Pixel by pixel, although hundreds of candidates overlap."""
    maps = noisy(seed, shape)
    objects = find_candidates(maps, 0.3)
    upright = found(maps, 0.3, 0.3)
    assert len(objects) > 2 * upright.max() > 10
    for g in D4.exact_elements[1:]:
        assert changes(upright, turned_back(found(moved(maps, g), 0.3, 0.3), g)) == (0, 0), g


@pytest.mark.parametrize("g", [1, 2, 4, 5])
def test_objects_on_whole_pixels_are_drawn_alike_in_every_pose(g: int) -> None:
    """Corners and sides that run through the middle of pixels, which belong to the object at every side."""
    labels = drawn((31, 31), [])
    labels[5:14, 6:13], labels[20:25, 3:28] = 1, 2
    targets = as_maps(star_targets(labels, 8))
    targets[1:] = (targets[1:] + 0.5).floor()
    upright = found(targets)
    assert upright.max() == 2
    assert changes(upright, turned_back(found(moved(targets, g)), g)) == (0, 0)


def test_polygons_on_whole_pixels_only_would_prefer_a_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of `FINENESS`: on whole pixels the package rounds the corners to one side."""
    monkeypatch.setattr("gcsa.tasks.segmentation.stars.FINENESS", 1)
    changed = [
        changes(found(maps, 0.3, 0.3), turned_back(found(moved(maps, g), 0.3, 0.3), g))
        for maps in (noisy(seed) for seed in range(4))
        for g in D4.exact_elements[1:]
    ]
    assert FINENESS == 64
    assert any(pixels for pixels, _ in changed)


def test_rays_that_do_not_turn_are_found() -> None:
    """The control of the action on rays."""
    maps = noisy(0)
    turned = act(maps[None], D4, 1, "image")[0]
    assert changes(found(maps), turned_back(found(turned), 1))[0] > 100


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_candidates_does_not_matter(seed: int) -> None:
    objects = find_candidates(noisy(seed), 0.3)
    shuffled = objects[np.random.default_rng(seed).permutation(len(objects))]
    one, other = (suppress(given, 0.3, (60, 60)) for given in (objects, shuffled))
    for name in ("points", "distances", "scores"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert 0 < len(one) < len(objects)


def test_equal_scores_go_by_the_distance_to_the_centre() -> None:
    points = np.array([[10.0, 4.0], [10.0, 8.0], [10.0, 14.0]])
    level = Objects(points, np.full((3, 8), 3, np.float32), np.full(3, 0.5))
    assert suppress(level, 1.0, (21, 21)).points[:, 1].tolist() == [8, 14, 4]
    larger = Objects(points[[1, 1]], np.array([8 * [4.0], 8 * [3.0]], np.float32), np.full(2, 0.5))
    assert suppress(larger, 0.5, (21, 21)).distances[:, 0].tolist() == [3]


@pytest.mark.parametrize(("nms_thresh", "kept"), [(0.0, 1), (0.2, 1), (0.5, 2), (1.0, 2)])
def test_overlap_is_a_share_of_the_smaller(nms_thresh: float, kept: int) -> None:
    """A third of the small disc lies in the large one, and a tenth of the large one in the small one."""
    labels = np.zeros((60, 60), np.int32)
    rows, columns = np.indices(labels.shape)
    large, small = (((rows - 30) ** 2 + (columns - c) ** 2 <= r * r) for c, r in ((22, 16), (40, 9)))
    share = (large & small).sum() / small.sum()
    assert 0.2 < share < 0.5
    assert (large & small).sum() / large.sum() < 0.2
    radii = np.repeat([[16.0], [9.0]], RAYS, 1).astype(np.float32)
    objects = Objects(np.array([[30.0, 22.0], [30.0, 40.0]]), radii, np.array([0.6, 0.9]))
    left = suppress(objects, nms_thresh, labels.shape)
    assert len(left) == kept
    assert left.scores[0] == 0.9


def test_the_higher_score_is_seen_where_two_overlap() -> None:
    radii = np.full((2, RAYS), 8, np.float32)
    labels = draw(Objects(np.array([[12.0, 10.0], [12.0, 18.0]]), radii, np.array([0.9, 0.6])), (25, 30))
    assert labels[12, 14] == 1
    assert labels[12, 22] == 2


def test_candidates_are_local_maxima_above_the_threshold() -> None:
    maps = torch.full((9, 6, 6), 5.0)
    maps[0] = -9
    maps[0, 1, 1], maps[0, 1, 2], maps[0, 4, 4], maps[0, 4, 0] = 2.0, 1.0, 0.5, -0.1
    chosen = find_candidates(maps, 0.5)
    assert chosen.points.tolist() == [[1, 1], [4, 4]]
    assert chosen.scores.tolist() == pytest.approx(torch.tensor([2.0, 0.5]).sigmoid().tolist())
    assert len(find_candidates(maps, 0.45)) == 3
    assert len(find_candidates(maps, 0.9)) == 0


def test_rays_of_a_network_may_be_negative() -> None:
    maps = torch.full((9, 5, 5), -3.0)
    maps[0, 2, 2] = 4
    labels = found(maps)
    assert labels[2, 2] == 1
    assert labels.sum() == 1


def test_maps_that_are_not_numbers_hold_no_objects() -> None:
    assert not found(torch.full((9, 8, 8), float("nan"))).any()


def test_maps_with_a_gradient() -> None:
    maps = noisy(0).requires_grad_()
    assert np.array_equal(found(maps), found(maps.detach()))


def test_objects_are_chosen_joined_and_moved() -> None:
    objects = find_candidates(noisy(1), 0.5)
    again = Objects.joined([objects[::2], objects[1::2]])
    assert len(again) == len(objects)
    one, other = (suppress(given, 0.3, (60, 60)) for given in (objects, again))
    assert np.array_equal(one.points, other.points)
    moved = objects.shifted(3, -7)
    assert (moved.points - objects.points == [3, -7]).all()
    assert np.allclose(moved.outlines() - objects.outlines(), [3, -7])


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    for missing in ("find_spec", "EXTENSION_SUFFIXES"):  # the package, or its compiled part
        stars._compiled.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(stars, missing, [] if missing.isupper() else lambda name: None)
            with raises("stardist.missing"):
                check_installed()


def test_suppression_is_that_of_the_package_which_is_not_imported() -> None:
    """It imports numba, for most of the time to a first answer."""
    code = """if True:
        import sys
        import numpy as np
        from gcsa.tasks.segmentation.stars import Objects, suppress
        ones = np.ones((2, 32), np.float32)
        assert len(suppress(Objects(np.array([[9.0, 9], [9, 9.5]]), 5 * ones, np.array([0.9, 0.8])), 0.3, (20, 20))) == 1
        assert "stardist" not in sys.modules and "numba" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    from stardist.nms import non_maximum_suppression_inds

    objects = find_candidates(noisy(1), 0.5)
    objects = objects[np.argsort(-objects.scores)]
    kept = non_maximum_suppression_inds(objects.distances * 64, objects.points * 64, None, thresh=0.3, verbose=0)
    assert 3 < kept.sum() < len(objects)
    assert np.array_equal(suppress(objects, 0.3, (60, 60)).points, objects[kept].points)
