"""`escnn.nn.R2Conv`, which solves for its bases, is the reference for the closed form of `SteerableConv2d`."""

from typing import Any

import pytest
import torch
from escnn import nn as enn
from torch import Tensor

from gcsa.groups import group
from gcsa.layers.conv import SteerableConv2d, expand_filter
from gcsa.layers.kernels import max_frequency, rings
from gcsa.testing import relative_error

NAMES = ("c1", "c2", "c4", "c6", "c8", "c12", "c16", "d1", "d2", "d4", "d6", "d8")
# slow: escnn solves for seconds (the first kernel of a group fills its cache), or its solved basis takes hundreds of MB.
# Of the other groups, the sizes of c4, d2 and d4 stand for all, and an odd and an even one are tried of each.
HEAVY = {(name, k) for name in ("d6", "d8") for k in (1, 3, 4, 5, 7)}
HEAVY |= {(name, k) for name in ("c6", "c8", "c12", "c16") for k in (1, 5, 7)}


def r2conv(name: str, kernel_size: int, lift: bool, in_fields: int, out_fields: int) -> enn.R2Conv:
    """escnn's convolution of the same type; for even kernels with our rings, because its own waste the centre."""
    space = group(name).gspace()
    source = enn.FieldType(space, in_fields * [space.trivial_repr if lift else space.regular_repr])
    target = enn.FieldType(space, out_fields * [space.regular_repr])
    options: dict[str, Any] = {}
    if kernel_size % 2 == 0:
        radii, widths = rings(kernel_size)
        options = dict(rings=radii, sigma=widths, frequencies_cutoff=lambda r: max_frequency(r, kernel_size))
    return enn.R2Conv(source, target, kernel_size, bias=False, initialize=False, **options).double()


def escnn_span(conv: enn.R2Conv) -> Tensor:
    """One row for each of escnn's coefficients: the filter that it alone produces."""
    units = torch.eye(conv.weights.numel(), dtype=torch.float64)
    return torch.stack([conv.basisexpansion(unit).flatten() for unit in units])


def our_span(layer: SteerableConv2d) -> Tensor:
    """The same for ours, between single fields, where group-major and field-major channels are in one order."""
    units = torch.eye(layer.weight[0, 0].numel(), dtype=torch.float64)
    filters = expand_filter(units.reshape(-1, 1, *layer.weight.shape[2:]), layer.tables, layer.index)
    return filters.transpose(0, 1).flatten(1)


def field_major(x: Tensor, order: int, dim: int) -> Tensor:
    """Channels (N, C) flattened to escnn's (C, N) flattened."""
    return x.unflatten(dim, (order, -1)).transpose(dim, dim + 1).flatten(dim, dim + 1)


def residual(vectors: Tensor, span: Tensor) -> float:
    """Sine of the largest angle between the row space of `vectors` and that of `span`."""
    q, p = (torch.linalg.qr(x.T).Q for x in (vectors, span))
    outside = q - p @ (p.T @ q)
    return torch.linalg.matrix_norm(outside.T @ outside, 2).sqrt().item()


def same_output(layer: SteerableConv2d, conv: enn.R2Conv, span: Tensor, x: Tensor) -> None:
    """escnn's output for the coefficients whose filter is ours, on the same image."""
    order, m = layer.order, layer.index.shape[1]
    dense = field_major(field_major(layer.filter().detach(), order, 0), m, 1)
    with torch.no_grad():
        conv.weights.copy_(torch.linalg.solve(span @ span.T, span @ dense.flatten()))  # least squares
        conv.eval()
        theirs = conv(conv.in_type(field_major(x, m, 1))).tensor
        ours = layer(x if layer.lift else x.permute(0, 2, 3, 1).unflatten(3, (order, -1)))
    ours = field_major(ours.flatten(3).permute(0, 3, 1, 2), order, 1)
    assert relative_error(ours, theirs) < 1e-5


@pytest.mark.parametrize("lift", [True, False], ids=["lift", "regular"])
@pytest.mark.parametrize(
    ("name", "kernel_size"),
    [
        pytest.param(name, k, marks=[pytest.mark.slow] if (name, k) in HEAVY else [])
        for name in NAMES
        for k in (1, 3, 4, 5, 7)
    ],
)
def test_span_and_output(name: str, kernel_size: int, lift: bool) -> None:
    conv = r2conv(name, kernel_size, lift, 1, 1)
    layer = SteerableConv2d(1, 1, kernel_size, name, lift, padding=0, stride=2 - kernel_size % 2, bias=False).double()
    theirs, ours = escnn_span(conv), our_span(layer)
    assert theirs.shape == ours.shape
    assert residual(ours, theirs) < 1e-6
    assert residual(theirs, ours) < 1e-6
    conv.stride = layer.stride
    size = kernel_size + 2
    same_output(layer, conv, theirs, torch.randn(2, layer.in_features, size, size, dtype=torch.float64))


@pytest.mark.parametrize("lift", [True, False], ids=["lift", "regular"])
@pytest.mark.parametrize("name", ["c4", "d2"])
def test_output_of_several_fields(name: str, lift: bool) -> None:
    conv = r2conv(name, 3, lift, 2, 3)
    layer = SteerableConv2d(2, 3, 3, name, lift, padding=0, bias=False).double()
    same_output(layer, conv, escnn_span(conv), torch.randn(2, layer.in_features, 5, 6, dtype=torch.float64))


def test_a_wrong_table_leaves_the_span() -> None:
    layer = SteerableConv2d(1, 1, 3, "c8", padding=0, bias=False).double()
    layer.tables[1, 1, 0, 0] += 1e-4
    assert residual(our_span(layer), escnn_span(r2conv("c8", 3, False, 1, 1))) > 1e-6
