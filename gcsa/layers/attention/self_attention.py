"""Group convolutional self-attention, G-CSA: queries, keys and values are group convolutions (poster eq. 2 to 4).

Because the convolutions carry the position, the attention itself needs no position encoding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import Group, group as make_group
from gcsa.layers.attention.attend import ATTENTION, GroupAttention
from gcsa.layers.checks import check_exact, check_heads, check_radius, check_whole
from gcsa.layers.regularize import FieldDropout
from gcsa.layers.steerable import FieldConv2d, SteerableConv2d, convolve_all, group_convolution, kernel_for_stride


class GroupConvSelfAttention(nn.Module):
    """G-CSA on feature maps (B, H, W, N, C), equivariant to translations and the group.

    Args:
        fields: regular fields C.
        heads: attention heads; must divide `fields`.
        group: such as "c8".
        attention: "group", "spatial" or "linear"; see `attend.py`.
        kernel_size: side of the query, key and value kernels in pixels.
        separable: of queries, keys and values (poster eq. 2), as in `group_convolution`.
        kv_stride: stride of keys and values; their kernel is then `kernel_for_stride(kv_stride)`, which is exact for
            every map that the stride divides (design section 2).
        padding_mode: "zeros" or "circular".
        basis: of the k x k filters, as in `SteerableConv2d`.
        proj_drop: probability with which an output field is dropped as a whole.
        attention_kwargs: further arguments of the attention, such as `radius`, `shape` or `features`.

    Raises:
        ValueError: unknown attention (the choices are named), heads that do not divide the fields, even kernel,
            an argument of another attention, neighbourhood together with kv_stride.
        TypeError: an argument of none.
    """

    def __init__(
        self,
        fields: int,
        heads: int,
        group: str | Group,
        attention: str = "spatial",
        kernel_size: int = 3,
        separable: bool = False,
        kv_stride: int = 1,
        padding_mode: str = "zeros",
        proj_drop: float = 0.0,
        basis: str = "band",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **attention_kwargs: Any,
    ) -> None:
        super().__init__()
        self.group = make_group(group)
        check_heads(fields, heads)
        if attention not in ATTENTION:
            raise UserError(f"unknown attention {attention!r}: choose one of {', '.join(ATTENTION)}")
        check_whole(kv_stride=kv_stride)
        kind = ATTENTION[attention]
        known = {key for other in ATTENTION.values() for key in other.options}
        for key in attention_kwargs:
            if key not in known:
                raise TypeError(f"GroupConvSelfAttention got an unexpected keyword argument {key!r}")
            if key not in kind.options:
                raise UserError(f"attention {attention!r} does not take {key!r}: it takes {', '.join(kind.options)}")
        radius = check_radius(attention_kwargs.get("radius"))
        if kv_stride > 1 and radius is not None:
            raise UserError(f"radius={radius} needs keys at every position: set kv_stride=1, not {kv_stride}")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        conv = dict(padding_mode=padding_mode, basis=basis, **factory)
        kv_kernel = kernel_size if kv_stride == 1 else kernel_for_stride(kv_stride)
        if kv_stride == 1:
            conv["sharers"] = 3  # queries, keys and values
        self.q = group_convolution(fields, fields, kernel_size, self.group, separable, **conv)
        self.k = group_convolution(fields, fields, kv_kernel, self.group, separable, stride=kv_stride, **conv)
        self.v = group_convolution(fields, fields, kv_kernel, self.group, separable, stride=kv_stride, **conv)
        if padding_mode == "circular" and radius is not None:
            attention_kwargs["circular"] = True
        self.attend = kind(self.group.order, fields, heads, **attention_kwargs)
        self.attend.to(**factory)
        self.out = SteerableConv2d(fields, fields, 1, self.group, **factory)
        self.proj_drop = FieldDropout(proj_drop)

    @torch.jit.unused
    def check_map(self, height: int, width: int) -> None:
        """Raises ValueError for a map that the neighbourhood exceeds or that `kv_stride` does not divide."""
        if isinstance(self.attend, GroupAttention):
            self.attend.check_map(height, width)
        for conv in self.k.modules():
            if isinstance(conv, FieldConv2d) and conv.checks_size:
                check_exact(height, width, conv.kernel_size, conv.stride, conv.padding)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, H, W, N, C); with kv_stride, ValueError for a map that it does not divide."""
        if torch.jit.is_scripting():
            q, k, v = self.q(x), self.k(x), self.v(x)
        else:
            q, k, v = convolve_all((self.q, self.k, self.v), x)
        return self.proj_drop(self.out(self.attend(q, k, v)))
