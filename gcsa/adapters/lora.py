"""PEFT's configuration for gcsa models, and adapters from files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import (
    LoraConfig,
    PeftModel,
    PeftType,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from gcsa._utils.errors import UserError, one_line
from gcsa.adapters.convolutional_lora import ConvolutionalLora
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.relative_attention import SpatialEncoding
from gcsa.models.create import classifier_names
from gcsa.weights import read_adapter
from gcsa.weights.fingerprint import differ, fingerprint, is_within


class StoredLoraConfig(LoraConfig):
    """What PEFT makes of an adapter_config.json: with it `PeftModel.from_pretrained` loads adapters of gcsa models too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        register(self)


PEFT_TYPE_TO_CONFIG_MAPPING[PeftType.LORA] = StoredLoraConfig


def register(config: LoraConfig) -> LoraConfig:
    """Tells PEFT what to put around a `SteerableConv2d`; needed for every configuration not made here, because PEFT
    does not save it. Returns `config`."""
    config._register_custom_module({SteerableConv2d: ConvolutionalLora})
    return config


def lora_config(
    model: nn.Module,
    rank: int = 8,
    alpha: int | None = None,
    target_modules: str | Iterable[str] = ("q", "k", "v", "out"),
    **options: Any,
) -> LoraConfig:
    """PEFT's configuration of a rank-`rank` adapter of `model`, which stays as it is.

    Args:
        model: what will be adapted, also by another adapter beside those that it has.
        rank: regular fields between A and B (numbers, for `nn.Linear`).
        alpha: the delta is scaled by alpha / rank; None: twice the rank.
        target_modules: a name of modules, or several; each stands for all convolutions and linear layers of that name or
            within it, such as "mlp" or "stem". Depthwise convolutions are passed over, for the 1 x 1 behind them.
        options: of `peft.LoraConfig`, such as `use_rslora`, `lora_dropout` or `modules_to_save`. Norms with running
            statistics are added to `modules_to_save`: training changes these statistics, so the adapter must hold them. So is
            a classifier of another number of classes than the pretrained weights had, which is new. `revision` is by default the
            `fingerprint` of the other weights, so that `load` can refuse another base.

    Raises:
        ValueError: a rank below 1 or above the fields of a layer, a name that `model` lacks, dropout on an `nn.Linear`.
    """
    if rank < 1:
        raise UserError(f"the rank must be 1 or more, not {rank}", "adapter.rank", rank=rank)
    layers: dict[str, nn.Module] = {}
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    adaptable = _adaptable(base)
    for target in [target_modules] if isinstance(target_modules, str) else target_modules:
        chosen = {name: layer for name, layer in adaptable.items() if f".{target}." in f".{name}."}
        if not chosen:
            choices = ", ".join(sorted({part for name in adaptable for part in name.split(".")}))
            raise UserError(f"no layer to adapt is called {target!r}: choose from {choices}", "adapter.target_modules")
        layers |= chosen
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear) and options.get("lora_dropout"):
            raise UserError(
                f"lora_dropout={options['lora_dropout']} would drop single numbers in {name}, an nn.Linear, which "
                "breaks equivariance: use 0",
                "adapter.lora_dropout",
            )
        most = _fields(layer)
        if rank > most:
            raise UserError(
                f"rank {rank} is larger than the {most} fields of {name}: use {most} or less", "adapter.rank_too_large"
            )
    whole = list(options.pop("modules_to_save", None) or ())
    whole += [name for name in (*_with_statistics(base), *_new_classifiers(base)) if not is_within(name, whole)]
    options["modules_to_save"] = whole or None
    options.setdefault("revision", fingerprint(base, whole))
    alpha = 2 * rank if alpha is None else alpha
    return register(LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(layers), **options))


def load(model: nn.Module, folder: str | Path, adapter_name: str = "default", is_trainable: bool = False) -> PeftModel:
    """`model`, or a `PeftModel` of it, with the adapter that `save_pretrained` wrote into `folder`, or that comes with gcsa by
    this name.

    Raises FileNotFoundError for a missing file and ValueError for a damaged one, for the model inside a `PeftModel`, and for an
    adapter of another model, which leaves `model` as it was.
    """
    adapter = read_adapter(folder)
    tensors = adapter.tensors
    config = StoredLoraConfig(**adapter.config)
    config.inference_mode = not is_trainable
    peft_model: Any
    known = model.peft_config if isinstance(model, PeftModel) else {}
    if adapter_name in known:
        raise UserError(
            f"the model already has an adapter {adapter_name!r}: give another adapter_name", "adapter.name_taken"
        )
    if not isinstance(model, PeftModel) and any(isinstance(module, BaseTunerLayer) for module in model.modules()):
        raise UserError("the model has an adapter already: give its PeftModel, not the model inside", "adapter.inside")
    before = _Before.of(model)
    try:
        if isinstance(model, PeftModel):
            model.add_adapter(adapter_name, config)
            peft_model = model
        else:
            peft_model = get_peft_model(model, config, adapter_name)
        found = get_peft_model_state_dict(peft_model, None, adapter_name)
    except (ValueError, IndexError, KeyError) as error:  # of a token or a layer that the model lacks
        before.restore(model, adapter_name, config)
        raise UserError(
            f"the adapter in {folder} is of another model: {one_line(error)}", "adapter.other_model"
        ) from error
    wanted = {name: tensor.shape for name, tensor in found.items()}
    stored = {name: tensor.shape for name, tensor in tensors.items()}
    reason = None
    if wanted != stored:
        name = min(name for name in wanted | stored if wanted.get(name) != stored.get(name))
        key = "adapter.other_model"
        reason = (
            f"is of another model or rank: its {name} is {list(stored.get(name, [])) or 'missing'}"
            f", the model's is {list(wanted.get(name, [])) or 'missing'}"
        )
    elif config.revision and differ(config.revision, fingerprint(peft_model, config.modules_to_save or ())):
        key, reason = "adapter.other_weights", "was trained on other weights than the model has: take those of its base"
    if reason is not None:
        before.restore(model, adapter_name, config)
        raise UserError(f"the adapter in {folder} {reason}", key)
    set_peft_model_state_dict(peft_model, tensors, adapter_name)
    return peft_model if is_trainable else peft_model.eval()


@dataclass(frozen=True)
class _Before:
    """What a model was before an adapter: its modules by name, which parameters are trained, and the active adapters of a `PeftModel`."""

    modules: dict[str, nn.Module]
    trained: list[tuple[nn.Parameter, bool]]
    active: list[str]

    @classmethod
    def of(cls, model: Any) -> _Before:
        return cls(
            dict(model.named_modules(remove_duplicate=False)),
            [(parameter, parameter.requires_grad) for parameter in model.parameters()],
            list(model.active_adapters) if isinstance(model, PeftModel) else [],
        )

    def restore(self, model: Any, adapter_name: str, config: LoraConfig) -> None:
        """Leaves nothing of an adapter that was refused, whole or in its middle."""
        for name, module in self.modules.items():  # an outer one before those inside
            if name and model.get_submodule(name) is not module:
                model.set_submodule(name, module)
        if isinstance(model, PeftModel):
            model.peft_config[adapter_name] = config  # PEFT forgets it where it refuses, and deletes nothing without
            model.delete_adapter(adapter_name)
            if list(model.active_adapters) != self.active:
                tuner: Any = model.base_model
                tuner.set_adapter(self.active)
        else:
            vars(model).pop("peft_config", None)
        for parameter, trained in self.trained:
            parameter.requires_grad_(trained)


def _adaptable(model: nn.Module) -> dict[str, nn.Module]:
    """Name to layer, of an adapted one the layer itself. An adapter changes what a call of the layer returns, so those of which
    only the weights are read are left out."""
    readers = tuple(
        f"{name}." if name else "" for name, layer in model.named_modules() if isinstance(layer, SpatialEncoding)
    )
    return {
        name.removesuffix(".base_layer"): layer
        for name, layer in model.named_modules()
        if (isinstance(layer, nn.Linear | nn.Conv2d) or (isinstance(layer, SteerableConv2d) and not layer.depthwise))
        and not name.startswith(readers)
        and ".lora_" not in name
    }


def _with_statistics(model: nn.Module) -> list[str]:
    """The names of norms with running statistics; of one that an adapter holds already, that of the layer itself."""
    return [
        name.removesuffix(".original_module")
        for name, layer in model.named_modules()
        if getattr(layer, "running_mean", None) is not None and ".modules_to_save." not in name
    ]


def _new_classifiers(model: Any) -> list[str]:
    """The names of the classifiers of a timm model that was made for other classes than its pretrained weights."""
    trained = (getattr(model, "pretrained_cfg", None) or {}).get("num_classes")
    return classifier_names(model) if trained not in (None, getattr(model, "num_classes", trained)) else []


def _fields(layer: nn.Module) -> int:
    """The largest rank that means anything."""
    if isinstance(layer, SteerableConv2d):
        return layer.out_fields if layer.lift else min(layer.in_fields, layer.out_fields)
    if isinstance(layer, nn.Linear):
        return min(layer.in_features, layer.out_features)
    return layer.out_channels  # type: ignore[return-value]
