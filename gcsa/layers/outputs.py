"""What a regular field at a pixel can say: scalars, vectors and rays (design section 8).

A map is (B, H, W, N, C) before and channels (B, C', H, W) behind each of these layers, none of which has parameters. With
[g F](x, h) = F(g^-1 x, g^-1 h), the mean over the group only moves with the image; the sum over g of rho(g) v F(g), rho(g)
being the 2 x 2 matrix of g, turns as an arrow does; and the numbers F(g) themselves can stand for N directions, which g
permutes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import Group, group as make_group
from gcsa.layers.buffers import ComputedBuffers
from gcsa.layers.layout import to_nchw

RAY_SCALE = 10.0
"""Pixels that an output of 1 stands for, so that networks begin with numbers of the right size: about the radius of a nucleus."""


class Scalars(nn.Module):
    """The mean over the group: (B, H, W, N, C) to (B, C, H, W), which move with the image and keep their values."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, C, H, W)."""
        return x.mean(3).permute(0, 3, 1, 2)


class Vectors(ComputedBuffers):
    """Vectors a pixel: (B, H, W, N, 2 C) to (B, 2 C, H, W), pairs of a row and a column component, as flows are written
    (Stringer et al. 2021, Cellpose).

    They are mean_g rho(g) (e_row F_1(g) + e_column F_2(g)): frequency 1 of two regular fields a vector. One would do for
    groups of three rotations and more.
    """

    matrices: Tensor

    def __init__(
        self, group: str | Group, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.group = make_group(group)
        self.register_buffer(
            "matrices", torch.empty(self.group.order, 2, 2, device=device, dtype=dtype), persistent=False
        )
        self.init_non_persistent_buffers()

    def init_non_persistent_buffers(self) -> None:
        """Fills the matrices of the elements."""
        matrices = np.stack([self.group.array_matrix(g) for g in range(self.group.order)])
        with torch.no_grad():
            self.matrices.copy_(torch.from_numpy(matrices))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, 2 C) to (B, 2 C, H, W). Raises ValueError for an odd number of fields."""
        if x.shape[4] % 2:
            raise UserError(f"a vector takes two fields: give an even number of them, not {x.shape[4]}")
        pairs = x.unflatten(4, (-1, 2))
        vectors = torch.einsum("ngh,bxynch->bxycg", self.matrices.to(x.dtype), pairs) / self.group.order
        return vectors.flatten(3).permute(0, 3, 1, 2)


class Rays(nn.Module):
    """Distances along `rays` directions: regular fields (B, H, W, N, m) to (B, rays, H, W), the star-convex shapes of
    StarDist (Schmidt et al. 2018, arXiv:1806.03535).

    Direction k lies 2 pi k / rays clockwise of a row, as `stardist` counts (`Group.rays`). With m = rays / |rotations|,
    fields j = 0..m-1 of element g are the direction to which g takes ray j: of a group of rotations alone each direction is one number, and
    with mirrors each is the mean of two.

    Raises ValueError unless the rotations divide `rays`, and for an odd number of rays with mirrors.
    """

    def __init__(self, group: str | Group, rays: int = 32) -> None:
        super().__init__()
        self.group, self.rays = make_group(group), rays
        targets = self.group.rays(rays)[:, : self.fields].ravel()
        # Row k: the places (g, j) in the flattened fibre that stand for direction k.
        places = np.argsort(targets, kind="stable").reshape(rays, -1)
        self._places = places.tolist()

    @property
    def fields(self) -> int:
        """m, the regular fields that are needed."""
        return self.rays // self.group.rotations

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, m) to (B, rays, H, W)."""
        places = torch.tensor(self._places, device=x.device)
        numbers = to_nchw(x)
        return torch.stack([numbers[:, column] for column in places.unbind(1)]).mean(0)

    def extra_repr(self) -> str:
        return f"{self.group}, rays={self.rays}"
