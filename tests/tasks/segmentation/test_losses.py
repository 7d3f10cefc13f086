"""Targets and losses: nothing is lost by what is right, and only objects have rays."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.losses import RAY_WEIGHT, class_loss, classes, make_targets, split_validator, star_loss
from gcsa.tasks.segmentation.stars import star_targets
from tests.errors import raises
from tests.tasks.segmentation.networks import TINY


def labels() -> np.ndarray:
    """Two squares, one of 9 pixels a side and one of 4."""
    made = np.zeros((16, 24), np.int32)
    made[2:11, 1:10], made[9:13, 15:19] = 3, 8
    return made


def perfect(targets: Tensor) -> Tensor:
    outputs = targets.clone()
    outputs[:, 0] = torch.logit(targets[:, 0], eps=1e-6)
    return outputs


def test_targets_are_those_of_the_task() -> None:
    made = make_targets("instances", 2, 8)(labels())
    assert torch.equal(made, star_targets(labels(), 8))
    masks = make_targets("classes", 2, 8)(labels())
    assert (masks.shape, masks.dtype) == ((1, 16, 24), torch.float32)
    assert torch.equal(masks[0] > 0, torch.from_numpy(labels() > 0))
    assert masks.max() == 1
    several = make_targets("classes", 9, 8)(labels())
    assert several.unique().tolist() == [0, 3, 8]


@pytest.mark.parametrize("output", ["instances", "classes"])
def test_targets_reach_the_processes_that_a_run_starts(output: str) -> None:
    targets = make_targets(output, 2, 8)
    assert torch.equal(pickle.loads(pickle.dumps(targets))(labels()), targets(labels()))


def test_classes() -> None:
    assert classes(labels(), 2).unique().tolist() == [0, 1]
    assert classes(labels(), 9).dtype == torch.int64
    assert classes(np.zeros((0, 4), np.int32), 3).shape == (0, 4)
    with raises("mask.label"):
        classes(labels(), 8)


def test_perfect_outputs_lose_what_cannot_be_gained() -> None:
    """The rays lose nothing, and the object map the entropy of its depths."""
    targets = star_targets(labels(), 8)[None]
    depth = targets[:, 0]
    entropy = -(torch.xlogy(depth, depth) + torch.xlogy(1 - depth, 1 - depth)).mean()
    assert star_loss(perfect(targets), targets).item() == pytest.approx(entropy.item(), abs=1e-4)
    flat = torch.cat([(targets[:, :1] > 0).float(), targets[:, 1:]], 1)
    assert star_loss(perfect(flat), flat) < 1e-4


@pytest.mark.parametrize("channel", [0, 1, 8])
def test_every_output_counts(channel: int) -> None:
    targets = star_targets(labels(), 8)[None]
    outputs = perfect(targets)
    outputs[:, channel, 4:8, 3:7] += 2
    assert star_loss(outputs, targets) > star_loss(perfect(targets), targets) + 1e-3


def test_rays_outside_of_objects_do_not_matter() -> None:
    targets = star_targets(labels(), 8)[None]
    outputs, others = perfect(targets), perfect(targets)
    background = torch.from_numpy(labels() == 0)
    others[0, 1:, background] = 1000.0
    assert torch.equal(star_loss(outputs, targets), star_loss(others, targets))
    assert star_loss(others.flip(3), targets) > 10


def test_rays_are_weighted_by_depth_and_measured_in_pixels() -> None:
    """All of them off by one pixel lose `RAY_WEIGHT`, however many objects and images there are."""
    for count in (1, 3):
        targets = star_targets(labels(), 8)[None].expand(count, -1, -1, -1)
        outputs = perfect(targets)
        outputs[:, 1:] += 1
        more = star_loss(outputs, targets) - star_loss(perfect(targets), targets)
        assert more.item() == pytest.approx(RAY_WEIGHT, rel=1e-5)


def logits(drawn_classes: Tensor, num_classes: int, confidence: float) -> Tensor:
    return confidence * torch.nn.functional.one_hot(drawn_classes, num_classes).movedim(-1, 1).float()


@pytest.mark.parametrize("num_classes", [2, 4])
def test_masks_lose_less_the_more_they_are_right(num_classes: int) -> None:
    drawn_classes = torch.randint(num_classes, (2, 12, 10))
    losses = [
        class_loss(logits(drawn_classes, num_classes, c), drawn_classes[:, None].float()).item()
        for c in (-3, 0, 1, 4, 30)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1e-5
    # At zero: the cross-entropy of even odds, and a Dice score of what is there by chance.
    assert losses[1] == pytest.approx(math.log(num_classes) + 1 - 1 / num_classes, abs=0.05)


def test_a_rare_class_counts_as_much_as_a_frequent_one() -> None:
    """Dice is of classes, so that four pixels missed of four lose more than four of four hundred."""
    drawn_classes = torch.zeros(1, 20, 24, dtype=torch.long)
    drawn_classes[:, :, :20], drawn_classes[:, 0, 20:] = 1, 2
    without_rare, without_frequent = drawn_classes.clone(), drawn_classes.clone()
    without_rare[:, 0, 20:], without_frequent[:, 0, :4] = 0, 0
    rare, frequent = (
        class_loss(logits(found, 3, 30), drawn_classes[:, None].float()) for found in (without_rare, without_frequent)
    )
    assert rare > frequent + 0.3


@pytest.mark.parametrize("output", ["instances", "classes"])
@pytest.mark.parametrize("empty", [False, True])
def test_gradients_are_finite_and_reach_everything(output: str, empty: bool) -> None:
    """Also of a batch without a single object."""
    network = Segmenter(**TINY, output=output, layer_scale=1.0)
    drawn = np.pad(0 * labels() if empty else labels(), ((0, 0), (0, 8)))
    targets = torch.stack(2 * [make_targets(output, 2, 8)(drawn)])
    loss = (star_loss if output == "instances" else class_loss)(network(torch.randn(2, 3, *drawn.shape)), targets)
    loss.backward()
    assert loss.isfinite()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert network.network.encoder.stem.convs[0].weight.grad.abs().max() > 0


@pytest.mark.parametrize("output", ["instances", "classes"])
def test_a_few_steps_learn_a_picture(output: str) -> None:
    network = Segmenter(**TINY, output=output)
    drawn = np.pad(labels(), ((0, 0), (0, 8)))
    image = torch.from_numpy(drawn > 0).float().expand(1, 3, -1, -1)
    targets = make_targets(output, 2, 8)(drawn)[None]
    loss = star_loss if output == "instances" else class_loss
    optimizer = torch.optim.Adam(network.parameters(), 0.03)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        losses.append(loss(network(image), targets))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.75 * losses[0]


def test_a_class_without_training_pixels_is_told(caplog: pytest.LogCaptureFixture) -> None:
    check = split_validator("classes", 4)
    assert check is not None
    check([np.array([[0, 1], [2, 3]])])
    assert caplog.messages == []
    check([np.array([[0, 1]]), np.array([[3, 3]])])
    assert caplog.messages == ["no training mask has a pixel of class 2: it will not be found"]
    assert split_validator("classes", 2) is None  # of which the mask holds the numbers of objects
