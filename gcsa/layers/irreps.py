"""1 x 1 group convolutions in the basis of irreducible representations, where they are block-diagonal.

A 1 x 1 group convolution is sum_h w[o, c, h] R_h with the right translations (R_h x)(g) = x(g h). On the matrix
coefficients of a real orthogonal irrep, e_ij(g) = sqrt(d / N) rho_ij(g), they act on j alone, and alike for each i:
R_h takes the coefficients x_ik to sum_k rho_jk(h) x_ik. So each irrep needs one matrix, the Fourier transform of the
weights, w_rho[(j, o), (k, c)] = sum_h w[o, c, h] rho_jk(h), of d O x d C numbers: 6/16 of the products of the dense
matrix for C_4, 14/64 for C_8, 12/64 for D_4 (octic ViTs, Nordstrom et al. 2025). The function, the parameters and what
is stored stay the same; the basis is a question of speed.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gcsa.groups import Group


def copies(group: Group) -> list[int]:
    """How many times (the index i) each of `group.irreps` stands in the regular representation.

    d times, but once where it is of complex type, for then the second row of rho repeats the first.
    """
    return [irrep.shape[1] if group.mirror else 1 for irrep in group.irreps]


def fourier_matrix(group: Group) -> NDArray[np.float64]:
    """The orthogonal change of basis (N, N): row (rho, i, j) holds e_ij(g)."""
    rows = []
    for irrep, count in zip(group.irreps, copies(group), strict=True):
        d = irrep.shape[1]
        rows.append(math.sqrt(d / group.order) * irrep[:, :count].reshape(group.order, -1).T)
    return np.concatenate(rows)


def irrep_matrices(group: Group) -> NDArray[np.float64]:
    """All rho_jk(h), irrep after irrep: (sum of d^2, N)."""
    return np.concatenate([irrep.reshape(group.order, -1).T for irrep in group.irreps])


def weight_blocks(weight: Tensor, matrices: Tensor, sizes: list[int]) -> list[Tensor]:
    """w_rho (d O, d C) of each irrep, from weights (O, C, N) and `irrep_matrices`; `sizes` are the d."""
    fields = weight.shape[:2]
    spectrum = matrices @ weight.flatten(0, 1).t()
    blocks: list[Tensor] = []
    start = 0
    for d in sizes:
        rows = spectrum[start : start + d * d].view(d, d, fields[0], fields[1])
        blocks.append(rows.permute(0, 2, 1, 3).reshape(d * fields[0], d * fields[1]))
        start += d * d
    return blocks


def multiply_blocks(x: Tensor, blocks: list[Tensor], counts: list[int], fourier: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution of x (B, H, W, N, C) by `weight_blocks`, with their `copies`: (B, H, W, N, O).

    `bias` (O,) is that of the trivial coefficients: sqrt(N) times the constant that it adds.
    """
    columns: list[int] = []
    for block, count in zip(blocks, counts):  # noqa: B905 (TorchScript knows no strict)
        columns += [block.shape[1]] * count
    parts = torch.matmul(fourier, x).flatten(0, 2).flatten(1).split(columns, 1)
    out: list[Tensor] = []
    for block, count in zip(blocks, counts):  # noqa: B905
        for _ in range(count):
            out.append(F.linear(parts[len(out)], block, bias if len(out) == 0 else None))
    y = torch.cat(out, 1).view(x.shape[0], x.shape[1], x.shape[2], x.shape[3], -1)
    return torch.matmul(fourier.t(), y)
