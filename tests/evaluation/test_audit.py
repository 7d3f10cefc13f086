import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from gcsa.evaluation.audit import (
    invariance_error,
    invariance_errors,
    smooth_images,
    smooth_rotation_error,
    stage_errors,
)
from gcsa.evaluation.rotations import rotate

from .toys import BrightHalf, Brightness, Steerable


@pytest.mark.parametrize("group", ["c4", "c8", "d4", "c6"])
def test_equivariant_model_passes_and_a_broken_one_fails(group):
    images = torch.randn(4, 1, 12, 12)
    assert invariance_error(Steerable(group), images) < 1e-5
    assert all(stage.exact < 1e-5 for stage in stage_errors(Steerable(group), images))
    assert invariance_error(Steerable(group, broken=True), images) > 1e-3
    assert all(stage.exact > 1e-2 for stage in stage_errors(Steerable(group, broken=True), images))


def test_every_exact_element_but_the_identity_is_named():
    errors = invariance_errors(Steerable("d4"), torch.randn(2, 1, 9, 9))
    turns = ["90 deg", "180 deg", "270 deg"]
    assert list(errors) == turns + ["reflection, 0 deg"] + [f"reflection, {t}" for t in turns]
    assert list(invariance_errors(Steerable("c8"), torch.randn(2, 1, 9, 9))) == turns


def test_reflections_are_measured_for_d_groups_only():
    images = torch.randn(4, 1, 12, 12)
    chiral = Steerable("c4")
    assert invariance_error(chiral, images) < 1e-5
    chiral.group = Steerable("d4").group
    assert invariance_error(chiral, images) > 1e-3


def test_models_without_a_group_are_measured_under_quarter_rotations():
    images = torch.rand(4, 1, 12, 12)
    assert set(invariance_errors(Brightness(), images)) == {"90 deg", "180 deg", "270 deg"}
    assert invariance_error(Brightness(), images) < 1e-6
    assert invariance_error(BrightHalf(), images) > 1e-2
    assert stage_errors(Brightness(), images) == []
    assert invariance_error(timm.create_model("gcsa_tiny", group="c1"), images) > 1e-2


def test_stages_on_scalar_fields_rotate_as_images_do():
    model = timm.create_model("gcsa_pooled_small", in_chans=1, fields=4, stem_fields=(4, 4), depth=2)  # of 96 channels
    images = torch.randn(2, 1, 32, 32)
    stages = stage_errors(model, images)
    assert [(stage.kind, stage.shape) for stage in stages] == [("image", (96, 4, 4))] * 2
    assert all(stage.exact < 1e-5 and stage.at_45 is not None for stage in stages)
    model.stem.convs[0].tables[1] *= 1.5
    assert all(stage.exact > 1e-3 for stage in stage_errors(model, images))


def test_stages_of_other_timm_models_are_taken_for_scalar_fields():
    model = timm.create_model("resnet10t", num_classes=3, in_chans=1)
    stages = stage_errors(model, torch.randn(2, 1, 32, 32))
    assert [stage.kind for stage in stages] == ["image"] * 5
    assert stages[0].exact > 0.1
    assert model.training

    class Symmetric(nn.Module):
        def forward_intermediates(self, x, output_fmt, intermediates_only):
            return [F.avg_pool2d(x, 3, 1, 1)]

    (stage,) = stage_errors(Symmetric(), torch.randn(2, 1, 32, 32))
    assert stage.exact < 1e-6
    assert stage.at_45 < 1e-3


def test_smooth_images_rotate_about_the_centre_of_the_pixels():
    upright = smooth_images(3, 2, 24)
    assert upright.shape == (3, 2, 24, 24)
    assert torch.allclose(smooth_images(3, 2, 24, 90), upright.rot90(1, (-2, -1)), atol=1e-5)
    assert torch.allclose(smooth_images(3, 2, 24, 45), rotate(upright, 45), atol=0.1)
    assert not torch.allclose(smooth_images(3, 2, 24, -45), rotate(upright, 45), atol=0.3)
    border = torch.cat([upright[..., [0, -1]].flatten(), upright[..., [0, -1], :].flatten()])
    assert border.abs().max() < 0.05 * upright.abs().max()


def test_45_degrees_is_small_for_c8_and_large_for_others():
    assert smooth_rotation_error(Steerable("c8"), 1, 28) < 0.01
    assert smooth_rotation_error(Steerable("c8", broken=True), 1, 28) > 0.03
    assert smooth_rotation_error(Steerable("c4"), 1, 28) > 0.03
    images = torch.randn(2, 1, 28, 28)
    assert all(stage.at_45 < 0.01 for stage in stage_errors(Steerable("c8"), images))
    assert stage_errors(Steerable("c8", broken=True), images)[-1].at_45 > 0.03
    assert [stage.at_45 for stage in stage_errors(Steerable("c4"), images)] == [None, None]
