"""Group convolutions in the basis of irreducible representations, where those of 1 x 1 are block-diagonal.

A 1 x 1 group convolution is sum_h w[o, c, h] R_h with the right translations (R_h x)(g) = x(g h). On the matrix
coefficients of a real orthogonal irrep, e_ij(g) = sqrt(d / N) rho_ij(g), they act on j alone, and alike for each i:
R_h takes the coefficients x_ik to sum_k rho_jk(h) x_ik. So an irrep needs one matrix, the Fourier transform of the
weights, w_rho[(j, o), (k, c)] = sum_h w[o, c, h] rho_jk(h) (octic ViTs, Nordstrom et al. 2025).

Real irreps of rotations and mirrors have d = 1 or 2. Those of d = 1 are taken in pairs, as matrices with two zeros, so
that the whole is one convolution in N / 2 equal groups, with 2 / N of the products of the dense one. The function, the
parameters and what is stored stay the same; the basis is a question of speed.

A k x k convolution is one of 1 x 1 too, on an expansion of the map. Write b_j for its J basis functions and, for an element
g, b_j(g^-1 x) = sum_l D_lj(g) b_l(x). The filter from element m to g is sum_j w[o, c, g^-1 m, j] b_j(g^-1 x), and turned
back by m it is made of b_l(m^-1 x), which do not depend on g:

    y_o(g) = sum_{c, m, l} w'[o, (l, c), g^-1 m] e_{(l, c)}(m),    w'[o, (l, c), h] = sum_j w[o, c, h, j] D_lj(h^-1),

with the expansion e_{(l, c)}(m) = b_l(m^-1 x) * x_c(m), depthwise convolutions whose filters are constant. Of k^2 products
for each channel in and out, 2 J / N are left, and several convolutions of one map share the expansion.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.groups import Group


def irrep_pairs(group: Group) -> NDArray[np.float64]:
    """The irreps as matrices (N / 2, 2, 2, N): those of d = 1 in pairs, those of d = 2 as often as the regular
    representation has them: twice, but once for rotations alone, where the second row of rho repeats the first.

    Raises ValueError for a group of odd order, whose one trivial representation has no partner.
    """
    if group.order % 2 == 1:
        raise UserError(f"{group} has an odd order: its irreps of dimension 1 come in no pairs")
    signs = [irrep[:, 0, 0] for irrep in group.irreps if irrep.shape[1] == 1]
    zero = np.zeros(group.order)
    pairs = [np.array([[a, zero], [zero, b]]) for a, b in zip(signs[::2], signs[1::2], strict=True)]
    for irrep in group.irreps:
        if irrep.shape[1] == 2:
            pairs += [irrep.transpose(1, 2, 0)] * (2 if group.mirror else 1)
    return np.stack(pairs)


def fourier_matrix(group: Group) -> NDArray[np.float64]:
    """The orthogonal change of basis (N, N) to two coefficients for each of `irrep_pairs`: rows e_ij(g)."""
    rows = [irrep[:, 0] for irrep in group.irreps if irrep.shape[1] == 1]
    for irrep in group.irreps:
        if irrep.shape[1] == 2:
            rows += [math.sqrt(2) * irrep[:, i].T for i in range(2 if group.mirror else 1)]
    return np.concatenate([row.reshape(-1, group.order) for row in rows]) / math.sqrt(group.order)


def expanded_weight(weight: Tensor, steering: Tensor) -> Tensor:
    """The weights w' (O, J * C, N) of the 1 x 1 convolution on the expansion, from coefficients (O, C, N, J) and
    D_lj(h^-1) at [h, j, l]."""
    return torch.einsum("ochj,hjl->olch", weight, steering).flatten(1, 2)


def grouped_filter(weight: Tensor, pairs: Tensor) -> Tensor:
    """The filter (N * O, 2 * C, 1, 1) of a convolution in N / 2 groups, from weights (O, C, N) and `irrep_pairs`."""
    blocks = torch.einsum("gjkh,och->gjokc", pairs, weight)
    return blocks.flatten(3).flatten(0, 2)[:, :, None, None]
