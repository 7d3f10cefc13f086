"""Folding: the conversion of a model to plain torch modules.

A steerable convolution assembles its filter from coefficients and the kernel basis in each forward pass (`gcsa.layers.conv`).
Folding assembles the filter once. What multiplies each output field of a convolution in eval mode, a batch norm or a layer scale,
becomes part of its coefficients first, and the affine end of a segmenter one convolution. The function in eval mode stays the same.
"""

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from timm.layers import LayerScale
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_choice
from gcsa.layers.blocks import Block
from gcsa.layers.conv import FieldConv2d, SteerableConv2d
from gcsa.layers.conv_plans import Plan
from gcsa.layers.layout import to_nchw
from gcsa.layers.norm import FieldBatchNorm
from gcsa.layers.stem import Stem
from gcsa.models.unet import DenseHead

Module = TypeVar("Module", bound=nn.Module)
PLANS = ("auto", "portable", "direct")


class FoldedConv2d(FieldConv2d):
    """A `SteerableConv2d` that stores the assembled filter in `weight`, with the same layout and check of sizes.

    `weight` and `bias` keep their names, and have the shapes of `SteerableConv2d.assemble`.
    """

    def __init__(self, conv: SteerableConv2d, plan: Plan) -> None:
        super().__init__(conv.order, conv.kernel_size, conv.stride, conv.padding, conv.circular, conv.lift, conv.groups)
        self.dilation = conv.dilation
        self.plan = plan
        # Siblings on one shared expansion need their weights in the basis of irreps.
        self.in_irreps = plan.method != "direct" or plan.use_shared_expansion
        weight, bias = conv.assemble(self.in_irreps)
        self.weight = nn.Parameter(weight.detach().clone(), conv.weight.requires_grad)
        self.bias = None
        if bias is not None and conv.bias is not None:
            self.bias = nn.Parameter(bias.detach().clone(), conv.bias.requires_grad)
        self.register_buffer("fourier", conv.fourier if self.in_irreps else None)
        expands = self.in_irreps and conv.kernel_size > 1
        self.register_buffer("tables", conv.tables if expands else torch.empty(0), persistent=False)

    def assemble(self, in_irreps: bool) -> tuple[Tensor, Tensor | None]:
        """`weight` and `bias`, in the form chosen by folding."""
        return self.weight, self.bias


class FoldedHead(nn.Module):
    """A `DenseHead` whose `outputs` are one 1 x 1 convolution: the scalars and rays alone, and no regular fields to sum up."""

    def __init__(self, head: DenseHead, plan: str) -> None:
        super().__init__()
        self.norm, self.hidden = head.norm, _folded(head.hidden, plan)
        order, fields = head.norm.order, 2 * head.norm.fields
        wide = copy.deepcopy(head).double()
        with torch.no_grad():
            inputs = torch.eye(order * fields, dtype=torch.float64, device=head.norm.weight.device)
            shift = wide.outputs(torch.zeros_like(inputs[:1]).view(1, 1, 1, order, fields))
            weight = (wide.outputs(inputs.view(-1, 1, 1, order, fields)) - shift).transpose(0, 1)
        self.out = nn.Conv2d(order * fields, len(weight), 1).to(head.norm.weight)
        self.out.load_state_dict({"weight": weight, "bias": shift.flatten()})
        self.out.requires_grad_(head.out.weight.requires_grad)

    def forward(self, x: Tensor) -> Tensor:
        """(B, h, w, N, C) to (B, scalars + rays, h, w)."""
        return self.out(to_nchw(F.gelu(self.hidden(self.norm(x)))))


def fold(model: Module, plan: str = "auto") -> Module:
    """A copy of `model` without any `SteerableConv2d`, batch norm behind one, and layer scale: the same methods but for the head of a
    segmenter, and the same function in eval mode, in plain torch.

    A folded model is for inference. Training it would not keep it equivariant. Save it by `torch.save` or its state dict, because
    a folder of weights describes the unfolded model. Folding a folded model changes nothing.

    Args:
        model: any module.
        plan: "auto" keeps the plans for the device of the model. "portable" uses dense k x k filters, because expansions are
            fast only on CPUs in PyTorch. "direct" also uses dense filters for 1 x 1 convolutions, and leaves the end of a segmenter:
            it is for formats of narrow numbers.

    Raises:
        UserError: an unknown plan, an adapter that is not merged, "direct" for a folded model in the basis of irreps and for a
            folded segmenter.
    """
    check_choice("plan", plan, PLANS)
    for name, module in model.named_modules():
        if any(cls.__module__.startswith("peft.") for cls in type(module).__mro__):
            where = name or type(module).__name__
            raise UserError(
                f"{where} has an adapter: call merge_and_unload() on the model first, and fold the result",
                "folding.adapter",
            )
        bound = isinstance(module, FoldedHead) or (isinstance(module, FoldedConv2d) and module.in_irreps)
        if plan == "direct" and bound:
            raise UserError("the model is folded already: give the one that it was folded from", "folding.twice")
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, Stem):
            _fold_norms(module)
        elif isinstance(module, Block):
            _fold_scales(module)
    return _folded(model, plan)  # type: ignore[return-value]


def scale_fields(conv: nn.Module, scale: Tensor, shift: Tensor | None = None) -> None:
    """Changes a convolution with the output y to one with scale * y + shift, where both have one number for each field, (O,)."""
    assert isinstance(conv, SteerableConv2d)
    with torch.no_grad():
        bias = torch.zeros_like(scale) if conv.bias is None else scale * conv.bias
        conv.bias = nn.Parameter(bias if shift is None else bias + shift, conv.weight.requires_grad)
        conv.weight.mul_(scale[:, None, None, None])


def _fold_norms(stem: Stem) -> None:
    """Makes the batch norms of the stem part of the convolutions in front of them."""
    for i, (conv, norm) in enumerate(zip(stem.convs, stem.norms, strict=True)):
        if isinstance(norm, FieldBatchNorm):
            bn = norm.bn
            assert bn.running_mean is not None
            assert bn.running_var is not None
            scale = bn.weight * (bn.running_var + bn.eps).rsqrt()
            last = conv[-1] if isinstance(conv, nn.Sequential) else conv
            scale_fields(last, scale, bn.bias - scale * bn.running_mean)
            stem.norms[i] = nn.Identity()


def _fold_scales(block: Block) -> None:
    """Makes the layer scales of the block part of the convolutions in front of them."""
    for name, conv in (("scale1", block.attn.out), ("scale2", block.mlp.fc2)):
        scale = getattr(block, name)
        if isinstance(scale, LayerScale):
            scale_fields(conv, scale.gamma)
            setattr(block, name, nn.Identity())


def _folded(module: nn.Module, plan: str) -> nn.Module:
    if isinstance(module, SteerableConv2d):
        portable = Plan("irreps" if module.plan.method == "irreps" else "direct")
        plans = dict(auto=module.plan, portable=portable, direct=Plan())
        return FoldedConv2d(module, plans[plan]).train(module.training)
    # In 8 bits, scalars would share the scale of the larger rays.
    if isinstance(module, DenseHead) and plan != "direct":
        return FoldedHead(module, plan).train(module.training)
    for name, child in module.named_children():
        setattr(module, name, _folded(child, plan))
    return module
