"""The choices inside SteerableConv2d: `python -m benchmarks.speed.convolutions`.

A 1 x 1 convolution as `conv2d`, plain and dilated, or as `linear`, for a batch of 16 and of 8, which PyTorch takes to
another library on one thread; and a depthwise convolution of each channel with itself or of each field over the whole
group (channels reordered, N channels a group).
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common import alternate, arguments, save


def main() -> None:
    args = arguments(__doc__)
    content = {}
    for batch, channels in ((16, 96), (16, 768), (8, 96), (8, 768)):
        x = torch.randn(batch, 14, 14, channels, requires_grad=True)
        weight = torch.randn(channels, channels, requires_grad=True)
        g = torch.randn(batch, 14, 14, channels)

        def as_linear(x: Tensor = x, weight: Tensor = weight, g: Tensor = g) -> None:
            F.linear(x, weight).backward(g)

        def as_conv(dilation: int, x: Tensor = x, weight: Tensor = weight, g: Tensor = g) -> None:
            image = F.conv2d(x.permute(0, 3, 1, 2), weight[:, :, None, None], dilation=dilation)
            image.permute(0, 2, 3, 1).backward(g)

        name = f"1 x 1, batch {batch} of 14 x 14, {channels} channels, forward and backward"
        sides = {"conv2d": partial(as_conv, 1), "conv2d, dilated": partial(as_conv, 2), "linear": as_linear}
        content[name] = alternate(sides, args.repeats)
    for fields, order, size, batch in ((12, 8, 7, 64), (24, 8, 12, 16)):
        x = torch.randn(batch, size, size, order, fields, requires_grad=True)
        depthwise = torch.randn(order * fields, 1, 3, 3, requires_grad=True)
        whole = torch.randn(fields * order, order, 3, 3, requires_grad=True)

        def channel(x: Tensor = x, depthwise: Tensor = depthwise) -> None:
            image = x.flatten(3).permute(0, 3, 1, 2)
            F.conv2d(image, depthwise, padding=1, groups=depthwise.shape[0]).sum().backward()

        def field(x: Tensor = x, whole: Tensor = whole, fields: int = fields, order: int = order) -> None:
            image = x.transpose(3, 4).flatten(3).permute(0, 3, 1, 2)
            out = F.conv2d(image, whole, padding=1, groups=fields).permute(0, 2, 3, 1)
            out.unflatten(3, (fields, order)).transpose(3, 4).contiguous().sum().backward()

        name = f"depthwise 3 x 3, {fields} fields of order {order}, {size} x {size}, batch {batch}, forward, backward"
        content[name] = alternate({"each channel": channel, "each field": field}, args.repeats)
    save("convolutions", content)


if __name__ == "__main__":
    main()
