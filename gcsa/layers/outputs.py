"""Outputs for each pixel from regular fields: scalars and rays.

Each layer maps (B, H, W, N, C) to channels (B, C', H, W), and none has parameters. A regular field transforms as
[g F](x, h) = F(g^-1 x, g^-1 h). This gives two outputs:

- Scalars: the mean over the group, which moves with the image.
- Rays: the numbers F(g) themselves, as values for N directions, which g permutes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.layout import to_nchw

RAY_SCALE = 10.0
"""Pixels per unit of output, about the radius of a nucleus, so that initial outputs have the right magnitude."""


class Scalars(nn.Module):
    """The mean over the group: (B, H, W, N, C) to scalar fields (B, C, H, W), which move with the image."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, C, H, W)."""
        return x.mean(3).permute(0, 3, 1, 2)


class Rays(nn.Module):
    """Distances along `rays` directions: regular fields (B, H, W, N, m) to (B, rays, H, W), the star-convex shapes of
    StarDist (Schmidt et al. 2018, arXiv:1806.03535).

    Direction k is at the angle 2 pi k / rays, clockwise from the row axis, as in `stardist` (`Group.rays`). With
    m = rays / |rotations|, field j = 0..m-1 of element g is the direction to which g takes ray j. For C_N, each direction is one
    number. For D_N, each is the mean of two.

    Raises ValueError unless the number of rotations divides `rays`, and for an odd number of rays with reflections.
    """

    def __init__(self, group: str | Group, rays: int = 32) -> None:
        super().__init__()
        self.group, self.rays = make_group(group), rays
        targets = self.group.rays(rays)[:, : self.fields].ravel()
        # Row k: the indices of the pairs (g, j) of direction k in the flattened fibre.
        places = np.argsort(targets, kind="stable").reshape(rays, -1)
        self._places = places.tolist()

    @property
    def fields(self) -> int:
        """m, the number of regular fields in the input."""
        return self.rays // self.group.rotations

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, m) to (B, rays, H, W)."""
        places = torch.tensor(self._places, device=x.device)
        numbers = to_nchw(x)
        return torch.stack([numbers[:, column] for column in places.unbind(1)]).mean(0)

    def extra_repr(self) -> str:
        return f"{self.group}, rays={self.rays}"
