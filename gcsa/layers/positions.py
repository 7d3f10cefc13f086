"""Learned functions of the distance and the direction from an image's centre, for data with labels about the centre.

G-CSA needs no position encoding, and its result does not depend on the position of an object. Some labels do: those of a
lymph-node patch or of a crop around a cell are about the middle. A function P of the position x, lifted to the group as
E(x, g) = P(g^-1 x), does not change under the group: [g' E](x, g) = E(g'^-1 x, g'^-1 g) = E(x, g). Adding it to a feature map is
therefore equivariant to rotations and reflections about the centre, and no longer to shifts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.buffers import ComputedBuffers
from gcsa.layers.layout import pixel_coordinates


def centred_coordinates(height: int, width: int, like: Tensor) -> Tensor:
    """Coordinates (height, width, 2) from the centre, x to the right and y upwards, 1 being half the shorter side."""
    return (pixel_coordinates(height, width, like) * (2 / min(height, width))).to(like.dtype)


def squared_distances(height: int, width: int, like: Tensor) -> Tensor:
    """Squared distances (height, width) to the centre, 1 at the middle of the shorter sides."""
    x, y = centred_coordinates(height, width, like).unbind(-1)
    return x * x + y * y


class LearnedPositions(ComputedBuffers):
    """Adds E(x, g) = P(g^-1 x) to a feature map of any size; see the head of this file.

    P has a learned vector of the fields at each of 8 x 8 knots, and interpolates between them by Gaussians. It is no relative
    encoding.
    """

    KNOTS = 8
    inverses: Tensor

    def __init__(
        self,
        fields: int,
        group: str | Group,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.group = make_group(group)
        self.weight = nn.Parameter(torch.empty(fields, self.KNOTS**2, device=device, dtype=dtype))
        inverses = torch.empty(self.group.order, 2, 2, device=device, dtype=dtype)
        self.register_buffer("inverses", inverses, persistent=False)
        self.init_non_persistent_buffers()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.weight, std=0.2)

    def init_non_persistent_buffers(self) -> None:
        """Fills the matrices of the inverse elements."""
        matrices = np.stack([self.group.matrix(int(g)) for g in self.group.inverse])
        with torch.no_grad():
            self.inverses.copy_(torch.from_numpy(matrices))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape, in the dtype of x, which can be narrower than that of the parameters."""
        inverses = self.inverses.to(x.dtype)
        rotated = torch.einsum("hwj,gij->hwgi", centred_coordinates(x.shape[1], x.shape[2], x), inverses)
        line = torch.linspace(-1, 1, self.KNOTS, device=x.device, dtype=x.dtype)
        near = torch.exp(-((rotated[..., None] - line) * ((self.KNOTS - 1) / 2)).square())  # (H, W, N, 2, knots)
        function = near[:, :, :, 0, :, None] * near[:, :, :, 1, None, :]
        return x + function.flatten(3) @ self.weight.to(x.dtype).t()
