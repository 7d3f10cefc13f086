"""Adapters as PEFT writes them: adapter_config.json and adapter_model.safetensors in one folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.published import ADAPTER_CONFIG, published
from gcsa._utils.validation import is_int, is_number
from gcsa.weights.files import CHARSET, read_charset, read_json, read_tensors
from gcsa.weights.tensors import check_finite

ADAPTER_TENSORS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapter:
    """What a folder of an adapter holds, each entry checked: arguments of PEFT's `LoraConfig`, tensors, and the charset
    of the recogniser that it makes, where it is one's."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    characters: str | None = None


def read_adapter(folder: str | Path) -> Adapter:
    """The adapter that PEFT's `save_pretrained` wrote into `folder`, or that comes with gcsa by this name.

    Only what a low-rank adapter of a gcsa model needs is read: rank, alpha, dropout and the names of layers. Raises
    FileNotFoundError for a missing file and ValueError for a damaged one, or one that asks for more than that.
    """
    folder = published(str(folder)) or Path(folder)
    for file in (ADAPTER_CONFIG, ADAPTER_TENSORS):
        if not (folder / file).is_file():
            raise FileNotFoundError(f"there is no {folder / file}: name a folder as save_pretrained writes it")
    stored, tensors = read_json(folder / ADAPTER_CONFIG), read_tensors(folder / ADAPTER_TENSORS)
    check_finite(folder, tensors)
    checks: dict[str, Callable[[Any], bool]] = {
        "r": lambda value: is_int(value, 1, 16384),
        "lora_alpha": lambda value: is_number(value, 1e-6, 1e6),
        "lora_dropout": lambda value: is_number(value, 0, 1) and value < 1,
        "use_rslora": lambda value: isinstance(value, bool),
        "target_modules": _are_layers,
        "modules_to_save": lambda value: value is None or _are_layers(value),
    }
    config: dict[str, Any] = {}
    for key, check in checks.items():
        if key not in stored and key in ("use_rslora", "modules_to_save"):
            continue
        if not check(stored.get(key)):
            raise UserError(
                f"{folder / ADAPTER_CONFIG} is damaged: its {key} is {str(stored.get(key, 'missing'))[:60]}"
            )
        config[key] = stored[key]
    if stored.get("peft_type") != "LORA" or stored.get("bias", "none") != "none":
        raise UserError(f"{folder} is no plain LoRA adapter: its peft_type is {str(stored.get('peft_type'))[:60]}")
    for key in ("rank_pattern", "alpha_pattern", "layer_replication", "use_dora", "use_qalora", "use_bdlora"):
        if stored.get(key):
            raise UserError(f"{folder / ADAPTER_CONFIG} sets {key}, which adapters of gcsa models do not have")
    # What the rank costs is bounded by the file: the first factor of each delta has as many rows.
    for name, tensor in tensors.items():
        if ".lora_A." in name and name.endswith(".weight") and tensor.shape[:1] != (config["r"],):
            raise UserError(
                f"{folder} is damaged: {name[:100]} has {list(tensor.shape)[:1]} rows, its rank is {config['r']}"
            )
    return Adapter(config, tensors, read_charset(folder / CHARSET))


def _are_layers(names: Any) -> bool:
    """Whether these are names of modules, in a list: in a text, PEFT would see a regular expression."""
    if not isinstance(names, list) or not 1 <= len(names) <= 10_000:
        return False
    return all(isinstance(name, str) and len(name) <= 200 and name.replace(".", "_").isidentifier() for name in names)
