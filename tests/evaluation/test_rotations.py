import pytest
import timm
import torch

from gcsa.evaluation.rotations import (
    ANGLES,
    SHIFTS,
    RotatedCopies,
    border_value,
    rotate,
    rotation_curve,
    shift,
    shift_curve,
)
from gcsa.testing import randomize
from tests.errors import raises

from .toys import BrightHalf, Brightness, Steerable, half_bright_images


def test_quarter_turns_are_exact_and_counter_clockwise():
    images = torch.randn(2, 3, 7, 7)
    for k in range(-4, 5):
        assert torch.equal(rotate(images, 90 * k), torch.rot90(images, k, (-2, -1)))
    corner = torch.zeros(1, 1, 4, 4)
    corner[..., 0, 3] = 1  # top right goes to top left
    assert rotate(corner, 90)[0, 0, 0, 0] == 1


def test_other_turns_have_the_sense_of_the_exact_ones():
    images = torch.nn.functional.avg_pool2d(torch.randn(2, 1, 34, 34), 5, 1)
    assert torch.allclose(rotate(images, 89.999), rotate(images, 90), atol=1e-2)


def test_uncovered_pixels_take_the_border_value():
    images = torch.full((1, 2, 8, 8), -0.4)
    images[:, 1] = 3.0
    images[:, :, 3:5, 3:5] = 9.0
    assert border_value(images).flatten().tolist() == pytest.approx([-0.4, 3.0])
    for moved in (rotate(images, 45), shift(images, 5, 0), shift(images, 0, -8)):
        assert moved[0, 0].min() == pytest.approx(-0.4)
        assert moved[0, 1].min() == pytest.approx(3.0)
        assert moved.shape == images.shape


def test_shifts_go_right_and_down():
    images = torch.zeros(1, 1, 5, 5)
    images[..., 2, 2] = 1
    assert shift(images, 2, 0)[0, 0, 2, 4] == 1
    assert shift(images, 0, -1)[0, 0, 1, 2] == 1
    assert shift(images, 3, 0).sum() == 0
    assert shift(images, 3, 0, cyclic=True)[0, 0, 2, 0] == 1


def test_curve_of_an_invariant_model_is_flat():
    batches = [half_bright_images()]
    curve = rotation_curve(Brightness(), batches, range(0, 360, 90))
    assert curve.logit_change == pytest.approx([0] * 4)
    assert len(set(curve.accuracy)) == 1
    for axis in "xy":
        assert shift_curve(Brightness(), batches, axis, cyclic=True).logit_change == pytest.approx([0] * 17)


def test_curve_of_a_model_that_knows_right_from_left():
    curve = rotation_curve(BrightHalf(), [half_bright_images(5), half_bright_images(3)], (0, 90, 180, 22.5))
    assert curve.positions == (0, 90, 180, 22.5)
    assert curve.images == 8
    assert curve.accuracy[0] == curve.accuracy[3] == 1
    assert curve.accuracy[2] == 0
    assert curve.logit_change[0] == 0
    assert curve.logit_change[2] == pytest.approx(2**0.5)  # the two logits, one of them 0, change places


def test_the_mean_over_four_turned_copies_does_not_change_under_quarter_turns():
    images, _ = half_bright_images()
    model = BrightHalf()
    copies = RotatedCopies(model, 4)
    assert not torch.allclose(model(images.rot90(1, (-2, -1))), model(images))
    assert torch.allclose(copies(images.rot90(1, (-2, -1))), copies(images), atol=1e-6)
    mean = torch.stack([model(images.rot90(k, (-2, -1))).softmax(1) for k in range(4)]).mean(0)
    assert torch.allclose(copies(images), mean.log(), atol=1e-6)
    with raises("copies", value=0):
        RotatedCopies(model, 0)


@pytest.mark.parametrize(("group", "same"), [("c4", True), ("c1", False)])
def test_copies_that_a_network_cannot_tell_apart_are_computed_once(group: str, same: bool):
    model = randomize(timm.create_model("gcsa_tiny", group=group, in_chans=1, fields=4, depth=1)).eval()
    images, every = torch.randn(3, 1, 28, 28), RotatedCopies(model, 8)
    few = RotatedCopies(model, 8, invariant=True)
    assert (few.angles, len(every.angles)) == ([0, 45], 8)
    assert RotatedCopies(model, 6, invariant=True).angles == RotatedCopies(model, 6).angles
    assert torch.allclose(few(images), every(images), atol=1e-4) == same


def test_shift_curve_moves_the_asked_axis_only():
    batches = [half_bright_images()]
    x = shift_curve(BrightHalf(), batches, "x")
    assert (x.positions, x.accuracy[SHIFTS.index(0)], x.accuracy[SHIFTS.index(-8)]) == (SHIFTS, 1, 0)
    assert min(shift_curve(BrightHalf(), batches, "y", shifts=range(-4, 5)).accuracy) == 1
    with raises("axis", axis="z"):
        shift_curve(BrightHalf(), batches, "z")


def test_curve_of_a_c8_model_is_exact_at_quarter_turns_and_nearly_at_the_others():
    images = torch.nn.functional.avg_pool2d(torch.randn(4, 1, 20, 20), 5, 1)
    images = torch.nn.functional.pad(images, [8] * 4)
    changes = dict(zip(ANGLES, rotation_curve(Steerable(), [(images, torch.zeros(4))]).logit_change, strict=True))
    assert max(changes[a] for a in (0, 90, 180, 270)) < 1e-6
    assert 1e-6 < changes[45] < 0.2
