"""Queries, keys and values as group convolutions of one map (poster eq. 2), on one shared expansion if that is faster."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from gcsa.groups import Group
from gcsa.layers.conv import FieldConv2d, group_convolution, kernel_for_stride

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def can_share_expansion(convs: Sequence[nn.Module]) -> bool:
    """Whether these convolutions of one map can be computed together: all plan to, and have the same shape.

    An adapter or another wrapper, a replaced `forward` or a hook needs the input and output of each convolution, so any of these
    excludes it.
    """
    shapes = set()
    for conv in convs:
        if not isinstance(conv, FieldConv2d) or not conv.plan.use_shared_expansion or conv.bias is None:
            return False
        if "forward" in vars(conv) or any(getattr(conv, kind) for kind in HOOKS):
            return False
        shapes.add((conv.order, conv.tables.shape, conv.stride, conv.padding, conv.circular))
    return len(shapes) == 1


def convolve_together(convs: Sequence[nn.Module], x: Tensor) -> Sequence[Tensor]:
    """The output of each convolution of x (B, H, W, N, C), (B, H', W', N, O), on one expansion if they can share it."""
    if not can_share_expansion(convs):
        return [conv(x) for conv in convs]
    siblings = cast(Sequence[FieldConv2d], convs)
    first = siblings[0]
    filters, biases = zip(*(conv.assemble(in_irreps=True) for conv in siblings), strict=True)
    # One convolution reads the expansion, which is J times as large as x, only once.
    filter = torch.cat([filter.unflatten(0, (first.order, -1)) for filter in filters], 1).flatten(0, 1)
    bias = torch.cat([bias.view(first.order, -1) for bias in biases], 1).flatten()
    fields = [bias.numel() // first.order for bias in biases]
    return first.contract(first.expand(x), filter, bias).split(fields, -1)


class QueryKeyValue(nn.Module):
    """The convolutions `q`, `k` and `v` of an attention layer; a base class, so that parameters have these names.

    Args:
        fields: regular fields in and out.
        kernel_size: of the queries, and with kv_stride 1 of keys and values.
        kv_stride: stride of keys and values; above 1 their kernel is `kernel_for_stride(kv_stride)`.
        separable, conv: as in `group_convolution`.
    """

    def __init__(
        self, fields: int, kernel_size: int, group: str | Group, kv_stride: int, separable: bool, **conv: Any
    ) -> None:
        super().__init__()
        conv["num_siblings"] = 3 if kv_stride == 1 else 1
        kv_kernel = kernel_size if kv_stride == 1 else kernel_for_stride(kv_stride)
        self.q = group_convolution(fields, fields, kernel_size, group, separable, **conv)
        self.k = group_convolution(fields, fields, kv_kernel, group, separable, stride=kv_stride, **conv)
        self.v = group_convolution(fields, fields, kv_kernel, group, separable, stride=kv_stride, **conv)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps (B, H, W, N, C) to queries of this shape, and keys and values (B, H', W', N, C)."""
        if torch.jit.is_scripting():
            return self.q(x), self.k(x), self.v(x)
        else:
            q, k, v = convolve_together((self.q, self.k, self.v), x)
            return q, k, v
