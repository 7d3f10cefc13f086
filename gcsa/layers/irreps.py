"""Group convolutions in the basis of irreducible representations, where 1 x 1 ones are block-diagonal.

A 1 x 1 group convolution is sum_h w[o, c, h] R_h with the right translations (R_h x)(g) = x(g h). On the matrix
coefficients of a real orthogonal irrep, e_ij(g) = sqrt(d / N) rho_ij(g), they act only on j, and in the same way for each i:
R_h takes the coefficients x_ik to sum_k rho_jk(h) x_ik. So an irrep needs one matrix, the Fourier transform of the
weights, w_rho[(j, o), (k, c)] = sum_h w[o, c, h] rho_jk(h) (octic ViTs, Nordstrom et al. 2025).

Real irreps of rotations and reflections have d = 1 or 2. Two of d = 1 are joined as one 2 x 2 matrix with two zeros. The
result is one convolution in N / 2 equal groups, with 2 / N of the products of the dense one. The function, the parameters and
the state dict stay the same; the basis only changes the speed.

A k x k convolution is also a 1 x 1 convolution, on an expansion of the map. Let b_j be its J basis functions, and for an element
g, b_j(g^-1 x) = sum_l D_lj(g) b_l(x). The filter from element m to g is sum_j w[o, c, g^-1 m, j] b_j(g^-1 x). Written in the
functions b_l(m^-1 x), which do not depend on g, this gives

    y_o(g) = sum_{c, m, l} w'[o, (l, c), g^-1 m] e_{(l, c)}(m),    w'[o, (l, c), h] = sum_j w[o, c, h, j] D_lj(h^-1),

with the expansion e_{(l, c)}(m) = b_l(m^-1 x) * x_c(m), depthwise convolutions with constant filters. For each channel in and
out, 2 J / N products remain of k^2. Several convolutions of one map can share the expansion.
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
    """The irreps as matrices (N / 2, 2, 2, N): those of d = 1 in pairs, and those of d = 2 as often as in the regular
    representation.

    That is twice for D_N, and once for C_N, where the second row of rho repeats the first.

    Raises ValueError for a group of odd order, in which the trivial representation has no partner.
    """
    if group.order % 2 == 1:
        raise UserError(f"{group} has an odd order: its irreps of dimension 1 come in no pairs", "group.odd")
    signs = [irrep[:, 0, 0] for irrep in group.irreps if irrep.shape[1] == 1]
    zero = np.zeros(group.order)
    pairs = [np.array([[a, zero], [zero, b]]) for a, b in zip(signs[::2], signs[1::2], strict=True)]
    for irrep in group.irreps:
        if irrep.shape[1] == 2:
            pairs += [irrep.transpose(1, 2, 0)] * (2 if group.mirror else 1)
    return np.stack(pairs)


def fourier_matrix(group: Group) -> NDArray[np.float64]:
    """The orthogonal change of basis (N, N), with rows e_ij(g): two coefficients for each of `irrep_pairs`."""
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
