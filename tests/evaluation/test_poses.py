"""What is exact, and how much changes, of networks whose symmetry is known."""

import pytest
import torch
from torch import Tensor, nn

from gcsa.evaluation.poses import (
    SYMMETRIES,
    Change,
    Turn,
    compare,
    disc,
    exact_symmetry,
    neighbour_overlap,
    outputs,
    turned,
    turns,
    verdict,
)
from gcsa.groups import group as make_group
from gcsa.symmetry import Averaged
from tests.errors import raises

IMAGES = torch.rand(24, 1, 12, 12, generator=torch.Generator().manual_seed(0))


class Corner(nn.Module):
    """Two numbers of the corner pixels: nothing about it is symmetric."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([images[:, 0, 0, 1], images[:, 0, 2, 0]], 1)


def rows_and_columns(images: Tensor) -> Tensor:
    """The same when upside down and reflected along either axis, not by 90 degrees."""
    return torch.stack([images.mean(3).std(2).sum(1), images.mean(2).std(2).sum(1)], 1)


def found(network: object, kind: str = "classifier", steps: int = 16) -> list:
    return compare(outputs(network, IMAGES.split(7), steps), kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("network", "group"),
    [
        (lambda x: torch.stack([x.sum((1, 2, 3)), x.square().sum((1, 2, 3))], 1), "d4"),
        (rows_and_columns, "d2"),
        (Averaged(Corner(), "c4"), "c4"),
        (Averaged(Corner(), "d4"), "d4"),
        (Averaged(Corner(), "d1"), "d1"),
        (Averaged(Corner(), "c2"), "c2"),
        (Corner(), "c1"),
    ],
)
def test_the_group_of_a_network(network: object, group: str) -> None:
    changes = found(network)
    assert exact_symmetry(changes).name == group
    sentence = verdict(changes, "classifier")
    assert sentence.startswith(f"exact under {exact_symmetry(changes)} " if group != "c1" else "not exact for any")
    assert ("multiples of 90 degrees" in sentence) == (group != "d4")
    assert "at angles between" in sentence


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        ((lambda x: x.flip(3),), "d1, left-right reflection"),
        ((lambda x: x.flip(2),), "d1, up-down reflection"),
        ((lambda x: x.mT,), "d1, reflection across the diagonal from the upper left"),
        ((lambda x: x.mT.flip((2, 3)),), "d1, reflection across the diagonal from the upper right"),
        (
            (lambda x: x.flip(2), lambda x: x.flip(3), lambda x: x.flip((2, 3))),
            "d2, left-right and up-down reflections",
        ),
        (
            (lambda x: x.mT, lambda x: x.flip((2, 3)), lambda x: x.mT.flip((2, 3))),
            "d2, reflections across both diagonals",
        ),
    ],
)
def test_the_reflections_of_a_group_are_told(moved: tuple, words: str) -> None:
    corner = Corner()
    changes = found(lambda x: corner(x) + sum(corner(move(x)) for move in moved), steps=4)
    assert str(exact_symmetry(changes)) == words
    sentence = verdict(changes, "classifier")
    assert sentence.startswith(f"exact under {words} to ") or sentence.startswith(f"exact under {words} without any")
    assert "at other multiples of 90 degrees and reflections" in sentence
    share = sentence.rpartition("reflections ")[2].partition(" of")[0]
    assert share not in ("", "0.0 %"), "the mean is over the poses that change"


def test_every_group_of_exact_poses_is_one() -> None:
    """Closed under composition, no two alike, and as many as d4 has subgroups."""
    assert len(SYMMETRIES) == len({frozenset(symmetry.turns) for symmetry in SYMMETRIES}) == 10
    for symmetry in SYMMETRIES:
        elements = {turn.element for turn in symmetry.turns}
        assert elements == {int(make_group("d4").cayley[g, h]) for g in elements for h in elements}


def test_a_pose_outside_of_the_group_is_told() -> None:
    """Rounding may leave 90 degrees without 180."""
    kept = {Turn(90.0), Turn(270.0)}
    changes = [Change(turn, 0.0 if turn in kept else 0.1, answers=0.5) for turn in turns(4)[1:]]
    assert str(exact_symmetry(changes)) == "c1"
    assert verdict(changes, "classifier").startswith("exact at 90 degrees and at 270 degrees without any change; ")


@pytest.mark.parametrize(
    "network", [nn.Sequential(nn.BatchNorm2d(1), Corner()), nn.Sequential(nn.Dropout(0.5), Corner())]
)
def test_a_network_in_training_mode_is_refused(network: nn.Module) -> None:
    with raises("network.train_mode"):
        found(network.train())
    assert str(exact_symmetry(found(network.eval()))) == "c1"


def test_every_turn_once() -> None:
    assert len(turns(16)) == 8 + 12
    assert turns(4) == turns(16)[:8]
    changes = found(Corner(), steps=8)
    assert [change.turn for change in changes] == turns(8)[1:]


def test_exact_turns_move_pixels_only() -> None:
    for turn in turns(4):
        assert torch.equal(turned(IMAGES, turn).flatten(1).sort(1).values, IMAGES.flatten(1).sort(1).values)
    assert torch.equal(turned(IMAGES, Turn(90.0)), IMAGES.rot90(1, (2, 3)))


def test_between_them_smooth_images_are_compared_within_the_disc() -> None:
    """A round blob is the same at every angle, but for the resampling; outside of the disc nothing is seen."""
    places = torch.linspace(-1, 1, 64)
    blob = (-3 * (places[:, None] ** 2 + places**2)).exp()[None, None]
    assert (turned(blob, Turn(22.5)) - disc(blob)).abs().max() < 0.01
    assert disc(torch.ones(1, 1, 64, 64))[0, 0, 0].sum() == 0


def test_figures_of_classifiers() -> None:
    (change,) = [c for c in found(Corner(), steps=4) if c.turn == Turn(90.0)]
    before, after = Corner()(IMAGES), Corner()(IMAGES.rot90(1, (2, 3)))
    assert change.answers == pytest.approx((before.argmax(1) != after.argmax(1)).double().mean().item())
    assert change.probability == pytest.approx((before.softmax(1) - after.softmax(1)).abs().amax(1).mean().item())
    assert change.neighbours is None


def test_figures_of_embeddings() -> None:
    (change,) = [c for c in found(Corner(), "embedding", 4) if c.turn == Turn(90.0)]
    before, after = Corner()(IMAGES), Corner()(IMAGES.rot90(1, (2, 3)))
    assert change.cosine == pytest.approx(1 - torch.cosine_similarity(before, after).mean().item(), abs=1e-6)
    assert change.distance == pytest.approx(((before - after).norm(dim=1).mean() / torch.pdist(before).median()).item())
    assert change.answers is None


def test_nearest_neighbours() -> None:
    features = torch.randn(200, 8, generator=torch.Generator().manual_seed(1))
    others = torch.randn(200, 8, generator=torch.Generator().manual_seed(2))
    assert neighbour_overlap(3 * features, features) == 1
    shared = neighbour_overlap(others, features)
    assert shared is not None
    assert shared < 0.12  # 10 of 199 by chance
    assert neighbour_overlap(features[:11], features[:11]) is None
