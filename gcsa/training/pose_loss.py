"""The loss by which a chooser of poses learns (`gcsa.models.pose.LearnedPose`)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from gcsa.symmetry import Canonical


def pose_loss(model: Canonical, x: Tensor, loss: Callable[[Any], Tensor]) -> Tensor:
    """The cross-entropy, of shape (), of the model's chooser against the pose in which its network, in eval mode, does best.

    x: images (B, C, H, W). loss: of an output of the network, brought back, the loss (B,) of each image.
    """
    in_training, losses = [module for module in model.network.modules() if module.training], []
    model.network.eval()
    try:
        with torch.no_grad():
            for k in range(model.group.order):
                y = model.network(model.group.act_on_grid(x, k))
                losses.append(loss(tree_map(lambda part, k=k: model.bring_back(part, k), y)))
    finally:
        for module in in_training:
            module.training = True
    return F.cross_entropy(model.chooser(x, model.group), torch.stack(losses, 1).argmin(1))
