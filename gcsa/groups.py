"""The finite groups of planar rotations and reflections, C_N and D_N, and their actions.

An element is an index 0 <= g < order, in escnn's order: first the N rotations by 2 pi g / N (counter-clockwise,
y axis upwards), then, for D_N, the same rotations after the reflection (x, y) -> (-x, y). A regular field on a
feature map of shape (B, H, W, N, C) transforms as `[g F](x, h) = F(g^-1 x, g^-1 h)`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcsa._utils.errors import UserError

if TYPE_CHECKING:
    from escnn.gspaces import GSpace2D

_NAME = re.compile(r"([cd])([1-9][0-9]*)")
MOST_ROTATIONS = 64  # memory grows with their square, and a pixel grid cannot resolve more


@dataclass(frozen=True)
class Group:
    """C_N (`mirror=False`, order N) or D_N (`mirror=True`, order 2 N). `group("c8")` makes one.

    Raises ValueError for fewer rotations than 1 or more than 64.
    """

    rotations: int
    mirror: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.rotations <= MOST_ROTATIONS:
            raise UserError(f"a group has 1 to {MOST_ROTATIONS} rotations, not {self.rotations}", "group.rotations")

    @property
    def name(self) -> str:
        return f"{'d' if self.mirror else 'c'}{self.rotations}"

    @property
    def order(self) -> int:
        """Number of elements |H|, the length N of the group axis."""
        return self.rotations * (2 if self.mirror else 1)

    def __str__(self) -> str:
        return self.name

    def _split(self, g: int) -> tuple[int, int]:
        if not 0 <= g < self.order:
            raise UserError(f"{self.name} has the elements 0 to {self.order - 1}, not {g}", "group.element", g=g)
        return divmod(g, self.rotations)

    @cached_property
    def cayley(self) -> NDArray[np.int64]:
        """Multiplication table (order, order): `cayley[g, h]` is the index of g h."""
        f, r = np.divmod(np.arange(self.order), self.rotations)
        flips = f[:, None] ^ f[None, :]
        # A rotation that is exchanged with a reflection changes its sense.
        turns = (r[:, None] + np.where(f[:, None] == 1, -r[None, :], r[None, :])) % self.rotations
        return flips * self.rotations + turns

    @cached_property
    def inverse(self) -> NDArray[np.int64]:
        """Index of the inverse of each element, shape (order,)."""
        return np.argmin(self.cayley, axis=1)

    def matrix(self, g: int) -> NDArray[np.float64]:
        """The 2 x 2 matrix of element g on column vectors (x to the right, y upwards)."""
        flip, turn = self._split(g)
        angle = 2 * math.pi * turn / self.rotations
        rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        return rotation @ np.diag([-1.0 if flip else 1.0, 1.0])

    def array_matrix(self, g: int) -> NDArray[np.float64]:
        """The 2 x 2 matrix of element g on (row, column) components, with rows counted downwards."""
        rows_up = np.array([[0.0, -1.0], [1.0, 0.0]])  # from (row, column) to (x, y), (0, 1) to (1, 0)
        to_plane = np.array([[0.0, 1.0], [-1.0, 0.0]])
        return rows_up @ self.matrix(g) @ to_plane

    def rays(self, rays: int) -> NDArray[np.int64]:
        """The permutation of `rays` directions by each element, (order, rays): [g, k] is the index of g k.

        Direction k points to (row, column) = (sin, cos)(2 pi k / rays), as in StarDist.

        Raises ValueError unless the number of rotations divides `rays`, and for an odd number of rays with reflections.
        """
        step = 2 * self.rotations if self.mirror and self.rotations % 2 else self.rotations
        if isinstance(rays, bool) or not isinstance(rays, int) or rays < 1 or rays % step:
            raise UserError(
                f"rays={rays!r} must be a multiple of {step}, so that {self.name} takes rays to rays", "rays", rays=rays
            )
        flip, turn = np.divmod(np.arange(self.order), self.rotations)
        k = np.arange(rays)
        mirrored = np.where(flip[:, None] == 1, rays // 2 - k, k)
        return (mirrored - turn[:, None] * (rays // self.rotations)) % rays

    @cached_property
    def exact_elements(self) -> tuple[int, ...]:
        """The elements that map a square pixel grid onto itself: rotations by multiples of 90 degrees, and reflections whose
        axis is vertical, horizontal or diagonal.

        The axis of element N + r of D_N is at 90 + 180 r / N degrees, so the reflection is exact where the rotation by
        360 r / N is. Both kinds count gcd(N, 4): d5 has the identity and the left-right reflection, its other axes lie between.
        """
        return tuple(g for g in range(self.order) if 4 * (g % self.rotations) % self.rotations == 0)

    def covers(self, other: Group) -> bool:
        """Whether each exact element of `other` is an exact element of this group too, as those of c4 are of c8 and d4."""
        exact = [{tuple(h.array_matrix(g).round().ravel()) for g in h.exact_elements} for h in (self, other)]
        return exact[1] <= exact[0]

    @property
    def exactness(self) -> str:
        """`exact_elements` in words."""
        among = math.gcd(self.rotations, 4)
        rotations = {1: [], 2: ["rotation by 180 degrees"], 4: ["rotations by 90 degrees"]}[among]
        reflections = {1: "left-right reflection", 2: "left-right and up-down reflections", 4: "reflections"}[among]
        words = rotations + ([reflections] if self.mirror else []) or ["the identity only"]
        return f"{' and '.join(words)}, {len(self.exact_elements)} of {self.order} elements"

    @cached_property
    def irreps(self) -> tuple[NDArray[np.float64], ...]:
        """The real irreducible representations, each as orthogonal matrices (order, d, d) with d = 1 or 2.

        The first one is trivial. Those of C_N with d = 2 are of complex type: their matrices are rotations, which commute.
        """
        flip, turn = np.divmod(np.arange(self.order), self.rotations)
        signs = (-1.0) ** flip
        characters = [np.ones(self.order)] + ([signs] if self.mirror else [])
        if self.rotations % 2 == 0:
            characters += [(-1.0) ** turn * character for character in characters]
        irreps = [character[:, None, None] for character in characters]
        for frequency in range(1, (self.rotations + 1) // 2):
            angle = 2 * math.pi * frequency * turn / self.rotations
            cos, sin = np.cos(angle), np.sin(angle)
            # The reflection acts first, as in `matrix`.
            irreps.append(np.stack([np.stack([signs * cos, -sin], -1), np.stack([signs * sin, cos], -1)], -2))
        return tuple(irreps)

    def act_on_grid(self, x: Tensor, g: int, dims: tuple[int, int] = (-2, -1)) -> Tensor:
        """`[g f](x) = f(g^-1 x)` on the (row, column) axes `dims` of x, for an exact element g.

        Raises ValueError if g does not map the grid onto itself.
        """
        if g not in self.exact_elements:
            raise UserError(
                f"element {g} of {self.name} does not map a pixel grid onto itself; {self.exact_elements} do",
                "group.element_off_grid",
            )
        flip, turn = self._split(g)
        if flip:
            x = x.flip(dims[1])
        return torch.rot90(x, 4 * turn // self.rotations, dims)

    def act_on_fibre(self, x: Tensor, g: int, dim: int = 3) -> Tensor:
        """Permutes the group axis `dim` by the regular representation: out(h) = x(g^-1 h)."""
        source = torch.from_numpy(self.cayley[self.inverse[g]]).to(x.device)
        return x.index_select(dim, source)

    def act(self, x: Tensor, g: int) -> Tensor:
        """`[g F](x, h) = F(g^-1 x, g^-1 h)` on a feature map (B, H, W, N, C), for an exact element g."""
        return self.act_on_fibre(self.act_on_grid(x, g, (1, 2)), g)

    def gspace(self) -> GSpace2D:
        """escnn's space with the same group acting on the plane. The import of escnn is here because it takes seconds."""
        from escnn import gspaces

        if not self.mirror:
            return gspaces.rot2dOnR2(self.rotations) if self.rotations > 1 else gspaces.trivialOnR2()
        return gspaces.flipRot2dOnR2(self.rotations) if self.rotations > 1 else gspaces.flip2dOnR2()


def group(name: str | Group) -> Group:
    """The group called `name`: "c" or "d" and the number of rotations, 1 to 64, such as "c8" or "d4".

    Raises ValueError for any other name.
    """
    if isinstance(name, Group):
        return name
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UserError(
            f"unknown group {name!r}: write c or d and the number of rotations, 1 to {MOST_ROTATIONS}, such as c4, c8 or d4",
            "group",
        )
    if len(match[2]) > 3:  # Python itself refuses to read thousands of digits
        raise UserError(f"a group has 1 to {MOST_ROTATIONS} rotations, not {match[2][:12]}", "group.rotations")
    return Group(int(match[2]), match[1] == "d")
