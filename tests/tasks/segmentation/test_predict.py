"""One prediction for every kind of image, exact in every pose, whole or in tiles."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.data import immunohistochemistry
from skimage.filters import threshold_otsu

import gcsa
from gcsa.actions import transform_array
from gcsa.groups import group
from gcsa.images.stain import StainImage
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation import SegmentationPredictor
from gcsa.tasks.segmentation.metrics import InstanceScores
from gcsa.tasks.segmentation.predict import Segmentation, nearest
from gcsa.tasks.segmentation.stars import median_diameter
from gcsa.tasks.segmentation.tiles import choose_tiles
from tests.errors import raises
from tests.tasks.segmentation.networks import TINY, picture, untrained, whole_maps

D4 = group("d4")


def test_every_kind_of_image(tmp_path: Path) -> None:
    predictor, image = untrained(torch.float32), picture(30, 21)
    Image.fromarray(image).save(tmp_path / "x.png")
    tensor = torch.from_numpy(image).movedim(-1, 0)
    kinds = [image, tmp_path / "x.png", str(tmp_path / "x.png"), Image.fromarray(image), tensor, ArrayImage(image)]
    kinds += [image.astype(kind) for kind in (np.uint32, np.int64, np.float32, np.float64)]
    results = predictor.predict(kinds)
    assert results[0].labels.shape == (30, 21)
    assert results[0].labels.dtype == np.int32
    assert results[0].labels.max() > 0
    for result in results:
        assert np.array_equal(result.labels, results[0].labels)


def test_channels_are_converted() -> None:
    colour, grey = untrained(torch.float32), untrained(torch.float32, in_chans=1)
    image = picture(30, 21, 4)
    expected = colour.predict(image[..., :3]).labels
    assert np.array_equal(colour.predict(image).labels, expected), "alpha is dropped"
    assert np.array_equal(colour.predict(Image.fromarray(image)).labels, expected)
    level = image[..., 0]
    expected = colour.predict(np.repeat(level[..., None], 3, 2)).labels
    for one in (level, level[..., None], Image.fromarray(level), torch.from_numpy(level)):
        assert np.array_equal(colour.predict(one).labels, expected), "grey is repeated"
        assert np.array_equal(grey.predict(one).labels, grey.predict(level).labels)
    assert grey.predict(image).labels.shape == (30, 21)


@pytest.mark.parametrize(
    ("image", "key"),
    [
        (np.zeros((3, 40, 40), np.uint8), "image.shape"),
        (None, "image.type"),
        (np.zeros((0, 40, 3), np.uint8), "image.empty"),
        (np.zeros((2, 40, 40, 3), np.uint8), "image.shape"),
        (np.full((4, 4), np.nan), "image.not_finite"),
        (np.full((4, 4), 70_000), "image.beyond_16_bits"),
    ],
    ids=["channels first", "nothing", "empty", "four axes", "not finite", "large numbers"],
)
def test_images_of_no_use(image: Any, key: str) -> None:
    with raises(key):
        untrained().predict(image)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("in_chans", [1, 3])
def test_the_zero_and_the_gain_of_the_camera_do_not_matter(dtype: Any, in_chans: int) -> None:
    predictor, levels = untrained(in_chans=in_chans), picture(21, 30, in_chans) // 3
    first = predictor.predict(levels.astype(dtype)).labels
    assert first.max() > 0
    assert np.array_equal(first, predictor.predict((2 * levels + 16).astype(dtype)).labels)
    assert predictor.preprocess(levels).dtype == torch.float32
    assert predictor.predict(np.full((20, 20, in_chans), 7, np.uint8)).labels.shape == (20, 20)


@pytest.mark.parametrize("shape", [(64, 48), (61, 50)], ids=str)
@pytest.mark.parametrize("output", ["instances", "classes"])
def test_every_pose_gives_the_same_label_map_to_the_last_bit(shape: tuple[int, int], output: str) -> None:
    """Numbers and scores included, in float32, also in tiles. The maps of the network by itself differ by rounding."""
    predictor = untrained(torch.float32, output=output, num_classes=3, prob_thresh=0.3, nms_thresh=0.2)
    image, h = picture(*shape), predictor.group
    expected = {side: predictor.predict(image, tile=side) for side in (None, 20)}
    assert len(np.unique(expected[None].labels)) >= 3
    for g in h.exact_elements:
        for side, upright in expected.items():
            result = predictor.predict(transform_array(image, h, g), tile=side)
            assert np.array_equal(result.labels, transform_array(upright.labels, h, g))
            if upright.objects is not None:
                assert list(result.objects.scores) == list(upright.objects.scores)
            for top, left, bottom, right in ((0, 0, 1, 1), (7, 20, 31, 45), (30, 0, result.labels.shape[0], 17)):
                window = result.label_map.window(top, left, bottom, right)
                assert np.array_equal(window, result.labels[top:bottom, left:right])
    upright, rotated = (whole_maps(predictor.network, transform_array(image, h, g)) for g in (0, 1))
    assert not torch.equal(rotated[0], h.act_on_grid(upright[0], 1))


@pytest.mark.parametrize(("shape", "side"), [((200, 168), 20), ((211, 190), 25), ((197, 195), 30)], ids=str)
def test_tiles_find_the_objects_of_the_whole(shape: tuple[int, int], side: int) -> None:
    predictor, image = untrained(stem_strides=[2, 2], fields=[2, 2], num_heads=[1, 1]), picture(*shape)
    assert len(choose_tiles(predictor.network, shape, side)) > 1
    in_tiles, whole = predictor.predict(image, tile=side), predictor.predict(image)
    assert whole.labels.max() > 3
    assert np.array_equal(in_tiles.labels, whole.labels)
    for name in ("points", "distances", "scores"):
        assert np.allclose(getattr(in_tiles.objects, name), getattr(whole.objects, name))


@pytest.mark.parametrize("side", [20, 33])
def test_classes_in_tiles(side: int) -> None:
    predictor, image = untrained(output="classes", num_classes=3, fields=[2, 2], num_heads=[1, 1]), picture(210, 184)
    result = predictor.predict(image, tile=side)
    assert result.objects is None
    assert result.num_classes == len(np.unique(result.labels)) == 3
    assert np.array_equal(result.labels, predictor.predict(image).labels)


def stained() -> Any:
    """A picture (61, 50, 3), dark at its left."""
    image = picture(61, 50) // 4
    image[:, 25:] += 180
    return image


def test_a_stain_is_exact_in_every_pose() -> None:
    predictor, image = untrained(torch.float32, prob_thresh=0.3), stained()
    expected = predictor.predict(image, stain="haematoxylin").labels
    assert expected.max() > 3
    brown = predictor.predict(image, stain="dab")
    assert brown.stain == "dab"
    assert not np.array_equal(brown.labels, expected)
    assert not np.array_equal(expected, predictor.predict(image).labels), "the network sees another picture"
    for g in predictor.group.exact_elements:
        labels = predictor.predict(transform_array(image, predictor.group, g), stain="haematoxylin", tile=20).labels
        assert np.array_equal(labels, transform_array(expected, predictor.group, g))
    for shape in (None, (122, 100)):
        found = predictor.predict(image, stain="haematoxylin", shape=shape).labels
        assert found.shape == (shape or image.shape[:2])
        assert len(np.unique(found)) > 3
    assert predictor.predict(np.full((30, 30, 3), 255, np.uint8), stain="haematoxylin").labels.max() == 0, "glass"
    with raises("stain", value="eosin"):
        predictor.predict(image, stain="eosin")


def test_the_stain_is_chosen_by_the_ood_score() -> None:
    """H&E of another laboratory is read by it and told by the score of the picture; fluorescence in a colour, and a picture that is known,
    are not."""
    predictor = gcsa.load("gcsa_unet_tiny.nuclei")
    image = immunohistochemistry()[:192, :192]
    found, expected, plain = (predictor.predict(image, stain=stain) for stain in ("auto", "haematoxylin", None))
    assert found.stain == expected.stain == "haematoxylin"
    assert np.array_equal(found.labels, expected.labels)
    assert found.ood_score == plain.ood_score > max(1, expected.ood_score)
    turned = predictor.predict(np.ascontiguousarray(np.rot90(image)))
    assert np.array_equal(turned.labels, np.rot90(found.labels))
    nuclei = np.asarray(Image.open(Path(__file__).parents[2] / "stored/nuclei.png").convert("RGB"))
    assert predictor.predict(nuclei).stain is None
    blue = nuclei * np.array([0, 0, 1], np.uint8)
    assert predictor.predict(blue).ood_score > 1
    assert predictor.predict(blue).stain is None
    predictor.ood_scorer = None
    assert predictor.predict(image).stain is None


def test_objects_with_little_of_the_stain_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, image = untrained(torch.float32, prob_thresh=0.3), stained()
    amounts = StainImage(ArrayImage(image)).window(0, 0, 61, 50)[..., 0]
    least = threshold_otsu(amounts)

    def means() -> list[float]:
        result = predictor.predict(image, stain="haematoxylin")
        assert len(result.objects) == result.labels.max()
        return [amounts[result.labels == number].mean() for number in range(1, len(result.objects) + 1)]

    kept = means()
    monkeypatch.setattr(Segmentation, "without_pale", lambda self, stained: self)
    everything = means()
    assert kept == [mean for mean in everything if mean >= least]
    assert 3 < len(kept) < len(everything)


def test_numbers_and_objects_belong_together() -> None:
    """Objects that others hide have no number. The reported fractions add up."""
    predictor, fractions = untrained(nms_thresh=1.0, prob_thresh=0.3, fields=[2, 2], num_heads=[1, 1]), []
    result = predictor.predict(picture(190, 184), tile=30, progress=fractions.append)
    assert len(fractions) > 1
    assert sum(fractions) == pytest.approx(1)
    assert set(np.unique(result.labels)) - {0} == set(range(1, len(result.objects) + 1))
    assert list(result.objects.scores) == sorted(result.objects.scores, reverse=True)


def test_candidates_are_found_once_for_all_thresholds() -> None:
    predictor, image = untrained(), ArrayImage(picture(48, 56))
    candidates = predictor.predict_candidates(image, prob_thresh=0.2)
    numbers = []
    middle = float(np.median(candidates.objects.scores))  # type: ignore[union-attr]
    for prob_thresh, nms_thresh in ((0.2, 0.4), (middle, 0.4), (middle, 0.0)):
        result = predictor.finish(candidates, prob_thresh=prob_thresh, nms_thresh=nms_thresh)
        predictor.prob_thresh, predictor.nms_thresh = prob_thresh, nms_thresh
        assert np.array_equal(result.labels, predictor.predict(image).labels)
        numbers.append(len(result.objects))
    assert numbers[0] > numbers[1] >= numbers[2] > 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (3, 200)], ids=str)
def test_tiny_images_in_tiles(shape: tuple[int, int]) -> None:
    predictor, image = untrained(), picture(*shape)
    assert np.array_equal(predictor.predict(image, tile=16).labels, predictor.predict(image).labels)


def test_a_plain_network_is_read_in_the_pose_of_the_image() -> None:
    predictor = SegmentationPredictor.create("gcsa_unet_tiny", **TINY, group="c1")
    assert {predictor.predict_candidates(ArrayImage(np.rot90(picture(12, 17), k))).pose for k in range(4)} == {0}


@pytest.mark.parametrize("output", ["instances", "classes"])
def test_a_network_without_a_group_in_the_canonical_pose(output: str, tmp_path: Path) -> None:
    """Its results rotate with the image, and its weights say so."""
    options = dict(output=output, num_classes=3, group="c1", fields=[8, 16], stem_fields=[8], prob_thresh=0.3)
    plain = untrained(torch.float32, **options)
    exact = SegmentationPredictor(plain.network, symmetry="canonical", symmetry_group="d4", prob_thresh=0.3)
    reopened: Any = gcsa.load(exact.save_pretrained(tmp_path / "weights"))
    image, changed = picture(61, 50), 0
    for g in range(D4.order):
        turned = np.ascontiguousarray(transform_array(image, D4, g))
        for predictor in (exact, reopened):
            assert np.array_equal(predictor.predict(turned).labels, transform_array(exact.predict(image).labels, D4, g))
        changed += int((plain.predict(turned).labels != transform_array(plain.predict(image).labels, D4, g)).sum())
    assert changed > 0, "negative control"
    assert (str(reopened.group), str(plain.group)) == ("d4", "c1")
    with raises("symmetry.exact"):
        untrained(symmetry="canonical")


@pytest.mark.parametrize("output", ["instances", "classes"])
@pytest.mark.parametrize("scale", [0.6, 1.7])
def test_scale_keeps_every_pose_exact(output: str, scale: float) -> None:
    predictor = untrained(torch.float32, output=output, num_classes=3, prob_thresh=0.3, nms_thresh=0.2)
    image = picture(61, 50)
    upright = predictor.predict(image, scale=scale)
    assert upright.labels.shape == (61, 50)
    assert not np.array_equal(upright.labels, predictor.predict(image).labels)
    for g in range(D4.order):
        turned = predictor.predict(np.ascontiguousarray(transform_array(image, D4, g)), scale=scale)
        assert np.array_equal(turned.labels, transform_array(upright.labels, D4, g))


def test_the_scale_that_is_found_keeps_every_pose_exact() -> None:
    """It is that of the weights' diameter, where the objects are of another size; few objects tell none."""
    predictor = untrained(torch.float32, prob_thresh=0.3, nms_thresh=0.2)
    image = picture(61, 50)
    found = predictor.predict(image)
    diameter = median_diameter([found.labels])
    assert diameter is not None
    predictor.diameter = diameter
    assert np.array_equal(predictor.predict(image, scale="auto").labels, found.labels)
    predictor.diameter = 2 * diameter
    upright = predictor.predict(image, scale="auto")
    assert np.array_equal(upright.labels, predictor.predict(image, scale=2.0).labels)
    for g in range(D4.order):
        turned = predictor.predict(np.ascontiguousarray(transform_array(image, D4, g)), scale="auto")
        assert np.array_equal(turned.labels, transform_array(upright.labels, D4, g))
    assert predictor.own_scale(Segmentation(ArrayImage(found.labels * 0), found.objects[:0])) == 1
    with raises("scale.classes"):
        untrained(output="classes").predict(image, scale="auto")


def test_small_nuclei_are_found_at_their_scale() -> None:
    """Nuclei at half their size: with scale=2, and with their diameter, most are where they are in the image itself."""
    predictor: Any = gcsa.load("gcsa_unet_tiny.nuclei")
    image = np.asarray(Image.open(Path(__file__).parents[2] / "stored/nuclei.png").convert("RGB"))
    small = np.asarray(Image.fromarray(image).reduce(2))
    wanted = nearest(predictor.predict(image).labels, small.shape[:2])
    assert predictor.scale_for(predictor.diameter / 2) == 2

    def agrees(labels: np.ndarray) -> float:
        scores = InstanceScores()
        scores.update(labels, wanted)
        return float(scores.compute()["ap50"])

    assert agrees(predictor.predict(small, scale=2.0).labels) > 0.8
    assert agrees(predictor.predict(small).labels) < agrees(predictor.predict(small, scale=2.0).labels), (
        "negative control"
    )
    assert agrees(predictor.predict(small, scale="auto").labels) > 0.8
    with raises("scale", value=0):
        predictor.predict(small, scale=0)
    with raises("scale.no_diameter"):
        untrained().scale_for(10)


@pytest.mark.parametrize("kind", ["normal", "Poisson", "blank"])
def test_noise_and_blank_fields_have_no_objects(kind: str) -> None:
    """Of the published weights, at any threshold; and noise beside an object is left as it was."""
    rng = np.random.default_rng(0)
    values = {
        "normal": rng.normal(100, 3, (256, 256)),
        "Poisson": rng.poisson(2, (256, 256)),
        "blank": np.ones((64, 64)),
    }
    field = values[kind].round().astype(np.uint8)
    predictor = gcsa.load("gcsa_unet_tiny.nuclei")
    predictor.prob_thresh = 0.05
    assert len(predictor.predict(field).objects) == 0
    rows, columns = np.indices(field.shape) - 32
    field[np.hypot(rows, columns) < 9] += 60
    assert len(predictor.predict(field).objects) > 0


def test_a_region_is_scaled_by_its_whole_picture() -> None:
    """So that its empty corner stays dark, and what is cut out of it is read as it is in the whole."""
    predictor = untrained(torch.float32, prob_thresh=0.3)
    image = picture(60, 60)
    image[:, 30:] //= 16
    whole = ArrayImage(image)
    corner = predictor.predict_candidates(ArrayImage(image[:, 30:]), limits=predictor.limits(whole))
    assert np.array_equal(predictor.predict(image[:, 30:], whole=whole).labels, predictor.finish(corner).labels)
    assert not np.array_equal(predictor.predict(image[:, 30:]).labels, predictor.finish(corner).labels)
