"""Folding: a model as plain torch modules, with nothing left to assemble.

A steerable convolution is an ordinary one whose filter is assembled from coefficients and the kernel basis (see
`gcsa/layers/conv.py`). Folding assembles each filter once and for all; the function stays the same.
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.layers.conv import FieldConv2d, SteerableConv2d
from gcsa.layers.upsample import SteerableConvTranspose2d

Module = TypeVar("Module", bound=nn.Module)


class FoldedConv2d(FieldConv2d):
    """A `SteerableConv2d` whose filter stands in `weight`, with its layout and its check of sizes.

    `weight` and `bias` keep the names of the layer that they replace, in the shapes of `SteerableConv2d.assemble`.
    """

    def __init__(self, conv: SteerableConv2d, dense: bool = False) -> None:
        super().__init__(conv.order, conv.kernel_size, conv.stride, conv.padding, conv.circular, conv.lift, conv.groups)
        self.dilation = conv.dilation
        self.shares = conv.shares and not dense
        self.in_irreps = self.shares or (conv.in_irreps and conv.kernel_size == 1)
        weight, bias = conv.assemble(self.in_irreps)
        self.weight = nn.Parameter(weight.detach().clone(), conv.weight.requires_grad)
        self.bias = None
        if bias is not None and conv.bias is not None:
            self.bias = nn.Parameter(bias.detach().clone(), conv.bias.requires_grad)
        self.register_buffer("fourier", conv.fourier if self.in_irreps else None)
        self.register_buffer("tables", conv.tables if self.shares else torch.empty(0), persistent=False)

    def assemble(self, in_irreps: bool | None = None) -> tuple[Tensor, Tensor | None]:
        """`weight` and `bias`, which folding chose."""
        return self.weight, self.bias


def fold(model: Module, dense: bool = False) -> Module:
    """A copy of `model` with no `SteerableConv2d` left: the same function and methods, plain torch.

    A model on a CPU may be left with expansions (see `gcsa/layers/irreps.py`), which other devices and runtimes are slow at:
    fold on the device where the model is to run, or with `dense`, for plain k x k filters throughout.

    A folded model is for running: it can still be trained, but as a plain network, which nothing keeps equivariant.
    Save it by `torch.save` or its state dict, for a folder of weights describes the model unfolded. Folding twice is
    folding once, `dense` or not. Raises ValueError for a model with an adapter that is not merged.
    """
    for name, module in model.named_modules():
        if any(cls.__module__.startswith("peft.") for cls in type(module).__mro__):
            where = name or type(module).__name__
            raise UserError(f"{where} has an adapter: call merge_and_unload() on the model first, and fold the result")
    return _folded(copy.deepcopy(model), dense)  # type: ignore[return-value]


def _folded(module: nn.Module, dense: bool) -> nn.Module:
    if isinstance(module, SteerableConv2d):
        return FoldedConv2d(module, dense).train(module.training)
    dense = dense or isinstance(module, SteerableConvTranspose2d)  # which takes no other filter
    for name, child in module.named_children():
        setattr(module, name, _folded(child, dense))
    return module
