"""Convolutional LoRA: a delta of low rank on a group convolution that is itself a group convolution.

LoRA (Hu et al. 2022) on the maps of equivariant attention (Schreiber, LoRAs and Equivariant Attention Mechanisms, eq. 4
to 9): phi + phi_B o phi_A, here with phi_A the layer's own kind of convolution to r regular fields and phi_B a 1 x 1
group convolution back, so that the sum is equivariant whatever the numbers in A and B. With filters as in
`gcsa.layers.conv` the composition is again such a filter, with the planar functions

    psi_h(x) = sum over h' of B[h'] psi^A_(h'^-1 h)(h'^-1 x),

and turned basis functions are sums of basis functions, so the merged layer has coefficients `weight + delta`, exactly.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import check_adapters_to_merge
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.kernels import steering_matrices
from gcsa.layers.norm import FieldDropout


def delta(phi_a: SteerableConv2d, phi_b: SteerableConv2d) -> Tensor:
    """The coefficients (out_fields, in_fields, |H| or 1, J) of phi_b o phi_a, phi_b a 1 x 1 convolution of stride 1."""
    turned = torch.from_numpy(steering_matrices(phi_a.group, phi_a.kernel_size, phi_a.basis)).to(phi_a.weight)
    ordered = phi_a.weight[:, :, phi_a.index.long()]  # (r, in_fields, h', h, J)
    return torch.einsum("org,rcghi,gij->ochj", phi_b.weight[..., 0], ordered, turned)


class Factor(SteerableConv2d):
    """phi_A or phi_B, as PEFT casts and saves it."""

    def get_extra_state(self) -> Tensor:
        """The fingerprint of the basis, of two axes, for PEFT warns of tensors with fewer."""
        return super().get_extra_state().reshape(1, 1)


class ConvolutionalLora(nn.Module, LoraLayer):
    """The layer that PEFT puts around a `SteerableConv2d`, once `register` has told it so.

    Args:
        base_layer: the convolution; lifting, strided, 1 x 1 or k x k.
        adapter_name, r, lora_alpha, config: as PEFT gives them.

    Raises:
        ValueError: depthwise convolution, r below 1, and options that PEFT has for matrices alone (DoRA and other
            variants, biases, initial values other than true and false).
    """

    def __init__(
        self,
        base_layer: SteerableConv2d,
        adapter_name: str,
        config: LoraConfig,
        r: int = 0,
        lora_alpha: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        LoraLayer.__init__(self, base_layer)
        self._active_adapter = adapter_name
        self._weight_before: Tensor | None = None
        self.update_layer(adapter_name, r, lora_alpha, config, **kwargs)

    def _get_in_out_features(self, module: nn.Module) -> tuple[int, int]:
        """Asked here, because PEFT warns of layers that it does not know."""
        return module.in_features, module.out_features  # type: ignore[return-value]

    def update_layer(self, adapter_name: str, r: int, lora_alpha: int, config: LoraConfig, **kwargs: Any) -> None:
        """Adds an adapter, or replaces the one of that name."""
        base: Any = self.get_base_layer()
        _check_options(base, r, config)
        self.resolve_lora_variant(config=config)  # raises ValueError for any variant
        self.r[adapter_name], self.lora_alpha[adapter_name] = r, lora_alpha
        self.use_rslora[adapter_name], self.use_dora[adapter_name] = config.use_rslora, False
        self.lora_bias[adapter_name] = False
        self.scaling[adapter_name] = lora_alpha / (math.sqrt(r) if config.use_rslora else r)
        # Whole channels of an image, and whole fields of a map, so that each draw is equivariant.
        dropout = nn.Dropout2d(config.lora_dropout) if base.lift else FieldDropout(config.lora_dropout)
        self.lora_dropout[adapter_name] = dropout
        self.lora_A[adapter_name] = Factor(
            base.in_fields,
            r,
            base.kernel_size,
            base.group,
            lift=base.lift,
            stride=base.stride,
            padding=base.padding,
            padding_mode="circular" if base.circular else "zeros",
            bias=False,
            basis=base.basis,
        )
        phi_b = Factor(r, base.out_fields, 1, base.group, bias=False)
        if config.init_lora_weights:
            nn.init.zeros_(phi_b.weight)
        self.lora_B[adapter_name] = phi_b
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def coefficients(self, adapter: str) -> Tensor:
        """What merging the adapter adds to `weight`."""
        phi_a, phi_b = self._factors(adapter)
        return self.scaling[adapter] * delta(phi_a, phi_b)

    def _factors(self, adapter: str) -> tuple[Any, Any]:
        return self.lora_A[adapter], self.lora_B[adapter]

    def get_delta_weight(self, adapter: str) -> Tensor:
        """Where PEFT asks for a matrix to decompose, and there is none. Raises ValueError."""
        raise UserError(
            "the delta of a group convolution is no matrix to take singular values of: combine adapters with "
            "combination_type='cat' (exact) or 'linear'",
            "adapter.combination_type",
        )

    @torch.no_grad()
    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Adds the adapters' deltas to `weight`. With `safe_merge`, ValueError where that would not be finite."""
        base: Any = self.get_base_layer()
        weight = base.weight
        for name in check_adapters_to_merge(self, adapter_names):
            if name not in self.lora_A:
                continue
            merged = weight + self.coefficients(name).to(weight.dtype)
            if safe_merge and not merged.isfinite().all():
                raise UserError(
                    f"adapter {name!r} holds numbers that are not finite: it was not merged", "adapter.not_finite"
                )
            if self._weight_before is None:
                self._weight_before = weight.data
            weight.data = merged
            self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """Gives back the weight from before the merge, bit for bit."""
        if self._weight_before is not None:
            base: Any = self.get_base_layer()
            weight = base.weight
            weight.data = self._weight_before.to(weight)
        self._weight_before = None
        self.merged_adapters.clear()

    def forward(self, x: Tensor, adapter_names: list[str] | None = None) -> Tensor:
        """As the convolution; `adapter_names`, one for each sample, as PEFT's layers take them."""
        self._check_forward_args(x, adapter_names=adapter_names)
        if self.disable_adapters and self.merged:
            self.unmerge()
        if not self.disable_adapters and adapter_names is not None:
            return self._mixed_batch_forward(x, adapter_names=adapter_names)
        out = self.base_layer(x)
        if self.disable_adapters or self.merged:
            return out
        total = out
        for name in self.active_adapters:
            if name in self.lora_A:
                phi_a, phi_b = self._factors(name)
                narrow = phi_a(self.lora_dropout[name](x.to(phi_a.weight.dtype)))
                total = total + self.scaling[name] * phi_b(narrow)
        return total.to(out.dtype)


def _check_options(base: SteerableConv2d, r: int, config: LoraConfig) -> None:
    if base.depthwise:
        raise UserError(
            "a depthwise convolution has nothing to be of low rank: target the 1 x 1 convolution behind it",
            "adapter.depthwise",
        )
    if r < 1:
        raise UserError(f"the rank must be 1 or more, not {r}", "adapter.rank", rank=r)
    if config.use_dora:
        raise UserError(
            "use_dora=True scales single channels, which breaks equivariance: use use_dora=False", "adapter.use_dora"
        )
    if config.lora_bias:
        raise UserError(
            "lora_bias=True is for matrices: use lora_bias=False with group convolutions", "adapter.lora_bias"
        )
    if not isinstance(config.init_lora_weights, bool):
        raise UserError(
            f"init_lora_weights={config.init_lora_weights!r} is for matrices: use True, which starts from a delta of "
            "zero, or False",
            "adapter.init_lora_weights",
        )
