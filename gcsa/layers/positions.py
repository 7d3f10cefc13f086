"""Learned functions of the distance and the direction from an image's centre, for data whose centre means something.

G-CSA needs no position encoding, and what it computes does not depend on where in the image something stands. The label
of many a picture is about its middle, though: of a lymph-node patch, of a crop around a cell. A function P of the place
x, lifted to the group as E(x, g) = P(g^-1 x), is the same for every pose: [g' E](x, g) = E(g'^-1 x, g'^-1 g) = E(x, g).
So adding it to a feature map is equivariant to turns and mirrors about the centre, and no longer to shifts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from gcsa.groups import Group, group as make_group
from gcsa.layers.buffers import ComputedBuffers


def squared_distances(height: int, width: int, like: Tensor) -> Tensor:
    """Squared distances (height, width) to the centre, 1 at the middle of the shorter sides."""
    x, y = places(height, width, like).unbind(-1)
    return x * x + y * y


def places(height: int, width: int, like: Tensor) -> Tensor:
    """Where positions stand (height, width, 2): x to the right, y upwards, from the centre, 1 being half the shorter side."""
    wide = torch.promote_types(like.dtype, torch.float32)  # bfloat16 counts to 256
    rows, columns = (torch.arange(n, device=like.device, dtype=wide) - (n - 1) / 2 for n in (height, width))
    y, x = torch.meshgrid(-rows, columns, indexing="ij")
    return (torch.stack([x, y], -1) * (2 / min(height, width))).to(like.dtype)


class LearnedPositions(ComputedBuffers):
    """Adds E(x, g) = P(g^-1 x) to a feature map, with P a learned vector of the fields at each of 8 x 8 knots, between which
    Gaussians interpolate; for maps of any size. Not a relative encoding: see the head of this file."""

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
        nn.init.trunc_normal_(self.weight, std=0.2)

    def init_non_persistent_buffers(self) -> None:
        """Fills the matrices of the inverse elements."""
        matrices = np.stack([self.group.matrix(int(g)) for g in self.group.inverse])
        with torch.no_grad():
            self.inverses.copy_(torch.from_numpy(matrices))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to the same shape, in its dtype, which half precision makes narrower than the parameters'."""
        inverses = self.inverses.to(x.dtype)
        turned = torch.einsum("hwj,gij->hwgi", places(x.shape[1], x.shape[2], x), inverses)
        line = torch.linspace(-1, 1, self.KNOTS, device=x.device, dtype=x.dtype)
        near = torch.exp(-((turned[..., None] - line) * ((self.KNOTS - 1) / 2)).square())  # (H, W, N, 2, knots)
        function = near[:, :, :, 0, :, None] * near[:, :, :, 1, None, :]
        return x + function.flatten(3) @ self.weight.to(x.dtype).t()
