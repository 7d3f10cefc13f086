"""How a chooser of poses learns."""

import torch
from torch import Tensor, nn

from gcsa import group
from gcsa.models.pose import LearnedPose
from gcsa.symmetry import Canonical
from gcsa.testing import assert_equivariant
from gcsa.training.pose_loss import pose_loss


def test_the_pose_loss_leaves_modes_as_they_are():
    frozen = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    wrapped = Canonical(frozen, "c4", LearnedPose(2, "c4")).train()
    frozen[1].eval()
    pose_loss(wrapped, torch.randn(2, 2, 16, 16), lambda scores: scores.sum(1))
    assert (frozen.training, frozen[0].training, frozen[1].training) == (True, True, False)


def test_the_pose_loss_finds_the_pose_in_which_the_network_does_best():
    """A network that is right where the image's bright spot lies at the top left: after training, every image is shown so."""

    class TopLeft(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, 0, :24, 8:24].sum((1, 2)) - 2 * x[:, 0, :8, :24].sum((1, 2))

    torch.manual_seed(0)
    wrapped = Canonical(TopLeft(), "d4", LearnedPose(1, "d4"))
    x = 0.1 * torch.randn(32, 1, 48, 48)
    x[:, :, 14:20, 10:14] += 2
    x = torch.cat([group("d4").act_on_grid(part, k) for k, part in enumerate(x.split(4))])
    best = lambda answers: -answers
    optimizer = torch.optim.Adam(wrapped.chooser.parameters(), lr=0.01)
    before = wrapped.eval()(x).mean()
    for _ in range(20):
        optimizer.zero_grad()
        pose_loss(wrapped.train(), x, best).backward()
        optimizer.step()
    oracle = torch.stack([TopLeft()(group("d4").act_on_grid(x, k)) for k in range(8)]).amax(0).mean()
    after = wrapped.eval()(x).mean()
    assert after - before > 0.7 * (oracle - before)
    assert wrapped.network.training is False
    assert_equivariant(wrapped, x[:4], "d4", "image", "invariant")
