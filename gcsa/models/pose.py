"""Networks of timm made exact by options of theirs, and a chooser of poses that learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_choice
from gcsa.groups import Group, group as make_group
from gcsa.models.gcsa import GCSA
from gcsa.symmetry import Averaged, Canonical, Symmetrized

SYMMETRIES = ("averaged", "canonical", "learned")
"""`Averaged`, `Canonical` by `moments`, and `Canonical` by a `LearnedPose`."""
SIDE = 48
"""Pixels a side of what `LearnedPose` sees."""


class LearnedPose(nn.Module):
    """A chooser for `Canonical`: a small G-CSA network whose regular output is a score for each pose (Kaba et al. 2022, arXiv:2211.06489).

    Images (B, C, H, W) and the group give scores (B, |H|), with s_k(g x) = s_{k g}(x) for every exact element g. It sees the image
    averaged to 48 x 48 pixels. It has below 30 thousand parameters, and learns by `gcsa.training.pose_loss`. It computes in the
    precision of its weights, whatever autocast says: keep them in float32, for in 16 bits rounding would choose the pose.

    Args:
        in_chans: channels of an image.
        group: that of the wrapper.
    """

    def __init__(self, in_chans: int = 3, group: str | Group = "d4") -> None:
        super().__init__()
        self.group = make_group(group)
        sizes: dict[str, Any] = dict(
            fields=8, depth=2, num_heads=2, mlp_ratio=2, stem_strides=(2, 2, 2), stem_norm="batch"
        )
        self.network = GCSA(
            in_chans=in_chans, group=str(self.group), num_classes=0, global_pool="", positions=True, **sizes
        )
        self.scores = nn.Linear(8, 1, bias=False)

    def forward(self, x: Tensor, group: Group) -> Tensor:
        if str(group) != str(self.group):
            raise UserError(
                f"the chooser is for {self.group}, not for {group}: make it for the wrapper's group", "chooser.group"
            )
        with torch.autocast(x.device.type, enabled=False):
            maps = self.network.forward_features(F.adaptive_avg_pool2d(x.to(self.scores.weight.dtype), SIDE))
            scores = self.scores(maps.mean((2, 3)).unflatten(1, (self.group.order, -1))).squeeze(2)
        return scores[:, torch.as_tensor(self.group.inverse, device=x.device)]


def symmetrize(network: nn.Module, symmetry: str, group: str = "d4") -> Symmetrized:
    """`network`, a timm classifier, made exact under `group`, by one of `SYMMETRIES`. Raises UserError as `Symmetrized`."""
    check_choice("symmetry", symmetry, SYMMETRIES)
    if symmetry == "averaged":
        return Averaged(network, group)
    if symmetry == "canonical":
        return Canonical(network, group)
    return Canonical(network, group, LearnedPose(getattr(network, "in_chans", 3), group))
