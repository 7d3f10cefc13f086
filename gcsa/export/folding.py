"""Folding: a model as plain torch modules, with no kernel basis and nothing left to assemble.

A steerable convolution is an ordinary one whose filter is assembled from coefficients and the kernel basis (see
`gcsa/layers/steerable.py`); a wide 1 x 1 one is a few matrix products, assembled from coefficients and irreps. Folding
assembles each filter once and for all; the function stays the same.
"""

import copy
from typing import TypeVar

from torch import Tensor, nn

from gcsa.layers.irreps import multiply_blocks
from gcsa.layers.steerable import SteerableConv2d, channels_last, check_exact

Module = TypeVar("Module", bound=nn.Module)


class FoldedConv2d(nn.Conv2d):
    """A `SteerableConv2d` as an ordinary convolution, with its layout and its check of sizes, and no basis.

    `weight` (N * O, M * C, k, k) and `bias` (N * O) keep the names of the layer that they replace.
    """

    def __init__(self, conv: SteerableConv2d) -> None:
        super().__init__(
            conv.in_features,
            conv.out_features,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            groups=conv.out_features if conv.depthwise else 1,
            bias=conv.bias is not None,
            padding_mode="circular" if conv.circular else "zeros",
            device="meta",  # nothing to initialise
        )
        self.order, self.lift, self.checks_size = conv.order, conv.lift, conv.checks_size
        self.weight = nn.Parameter(conv.filter().detach().clone(), conv.weight.requires_grad)
        if conv.bias is not None:
            self.bias = nn.Parameter(conv.bias.detach().repeat(conv.order), conv.bias.requires_grad)

    def forward(self, x: Tensor) -> Tensor:
        """As `SteerableConv2d.forward`."""
        image = channels_last(x) if self.lift else x.flatten(3).permute(0, 3, 1, 2)
        if self.checks_size:
            check_exact(image.shape[2], image.shape[3], self.kernel_size[0], self.stride[0], int(self.padding[0]))
        out = self._conv_forward(image, self.weight, self.bias)
        return out.permute(0, 2, 3, 1).unflatten(3, (self.order, -1))


class FoldedPointwise(nn.Module):
    """A wide 1 x 1 `SteerableConv2d` as matrix products in the irrep basis: `blocks` (d O, d C), `bias` (O,)."""

    fourier: Tensor

    def __init__(self, conv: SteerableConv2d) -> None:
        super().__init__()
        blocks, bias = conv.irrep_blocks()
        self.blocks = nn.ParameterList(
            nn.Parameter(block.detach().clone(), conv.weight.requires_grad) for block in blocks
        )
        self.bias = None
        if bias is not None and conv.bias is not None:
            self.bias = nn.Parameter(bias.detach().clone(), conv.bias.requires_grad)
        self.copies = conv.irrep_copies
        self.register_buffer("fourier", conv.fourier)

    def forward(self, x: Tensor) -> Tensor:
        """As `SteerableConv2d.forward`."""
        return multiply_blocks(x, [block for block in self.blocks], self.copies, self.fourier, self.bias)


def fold(model: Module) -> Module:
    """A copy of `model` with no `SteerableConv2d` left: the same function and methods, plain torch.

    A folded model is for running: it can still be trained, but as a plain network, which nothing keeps equivariant.
    Save it by `torch.save` or its state dict, for a folder of weights describes the model unfolded. Folding twice is
    folding once. Raises ValueError for a model with an adapter that is not merged.
    """
    for name, module in model.named_modules():
        if any(cls.__module__.startswith("peft.") for cls in type(module).__mro__):
            where = name or type(module).__name__
            raise ValueError(f"{where} has an adapter: call merge_and_unload() on the model first, and fold the result")
    return _folded(copy.deepcopy(model))  # type: ignore[return-value]


def _folded(module: nn.Module) -> nn.Module:
    if isinstance(module, SteerableConv2d):
        folded = FoldedConv2d(module) if module.fourier is None else FoldedPointwise(module)
        return folded.train(module.training)
    for name, child in module.named_children():
        setattr(module, name, _folded(child))
    return module
