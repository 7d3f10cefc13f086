"""Adapters as PEFT writes them: adapter_config.json and adapter_model.safetensors in one folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.paths import composed
from gcsa._utils.published import ADAPTER_CONFIG, published
from gcsa._utils.validation import is_int, is_number
from gcsa.weights.files import CHARSET, read_charset, read_json, read_tensors
from gcsa.weights.schema import are_label_names
from gcsa.weights.tensors import check_finite

ADAPTER_TENSORS = "adapter_model.safetensors"
LABEL_NAMES = "label_names.json"
MOST_LAYERS, MOST_TOKENS = 10_000, 100_000


@dataclass(frozen=True)
class Adapter:
    """What a folder of an adapter holds, each entry checked: arguments of PEFT's `LoraConfig`, tensors, and of the network that
    it makes the charset of a recogniser, or the class names of a classifier."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    characters: str | None = None
    label_names: tuple[str, ...] | None = None


def read_adapter(folder: str | Path) -> Adapter:
    """The adapter that PEFT's `save_pretrained` wrote into `folder`, or that comes with gcsa by this name.

    Reads the options that `gcsa.adapters.lora_config` can write: ranks, scales, dropout, biases, names of layers and tokens. Raises
    FileNotFoundError for a missing file and ValueError for a damaged one, or for another option.
    """
    folder = published(str(folder)) or Path(folder)
    for file in (ADAPTER_CONFIG, ADAPTER_TENSORS):
        if not (folder / file).is_file():
            raise FileNotFoundError(f"there is no {folder / file}: name a folder as save_pretrained writes it")
    stored, tensors = read_json(folder / ADAPTER_CONFIG), read_tensors(folder / ADAPTER_TENSORS)
    check_finite(folder, tensors)
    config: dict[str, Any] = {}
    for key, check in CHECKS.items():
        value = stored.get(key)
        if value is None and key in OPTIONAL:
            continue
        if not check(value):
            raise UserError(
                f"{folder / ADAPTER_CONFIG} is damaged: its {key} is {str(stored.get(key, 'missing'))[:60]}",
                "adapter.damaged_config",
            )
        config[key] = value
    if stored.get("peft_type") != "LORA":
        raise UserError(
            f"{folder} is no LoRA adapter: its peft_type is {str(stored.get('peft_type'))[:60]}", "adapter.peft_type"
        )
    for key in ("layer_replication", "use_dora", "use_qalora", "use_bdlora"):
        if stored.get(key):
            raise UserError(
                f"{folder / ADAPTER_CONFIG} sets {key}, which adapters of gcsa models do not have", "adapter.option"
            )
    # The file bounds the cost of a rank: the first factor of each delta has as many rows.
    ranks = {config["r"], *config.get("rank_pattern", {}).values()}
    rows = {
        name: tensor.shape[0]
        for name, tensor in tensors.items()
        if ".lora_A." in name and name.endswith(".weight") and tensor.ndim
    }
    for name, count in rows.items():
        if count not in ranks:
            raise UserError(
                f"{folder} is damaged: {name[:100]} has {count} rows, its rank is {max(ranks)}", "adapter.rows"
            )
    if rows and max(ranks) > max(rows.values()):
        raise UserError(f"{folder} is damaged: no tensor has the {max(ranks)} rows of its rank", "adapter.rank_missing")
    return Adapter(config, tensors, read_charset(folder / CHARSET), _read_label_names(folder / LABEL_NAMES))


def save_label_names(folder: Path, names: Sequence[str]) -> None:
    """Writes the class names of an adapted classifier beside its adapter, which may have another head than its base."""
    content = json.dumps({"label_names": list(names)}, indent=2, ensure_ascii=False)
    (folder / LABEL_NAMES).write_text(content + "\n", encoding="utf-8")


def _read_label_names(file: Path) -> tuple[str, ...] | None:
    if not file.is_file():
        return None
    names = read_json(file).get("label_names")
    if not are_label_names(names):
        raise UserError(f"{file} is damaged: its label_names is {str(names)[:60]}", "adapter.label_names")
    return tuple(map(composed, names))


def _is_layer(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= 200 and name.replace(".", "_").isidentifier()


def _are_layers(names: Any) -> bool:
    """Whether these are names of modules, in a list: PEFT takes a text for a regular expression."""
    return isinstance(names, list) and 1 <= len(names) <= MOST_LAYERS and all(map(_is_layer, names))


def _of_layers(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is an object from names of modules to values that pass `check`."""
    return lambda values: (
        isinstance(values, dict)
        and len(values) <= MOST_LAYERS
        and all(_is_layer(name) and check(value) for name, value in values.items())
    )


def _are_tokens(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) <= MOST_TOKENS and all(is_int(token, 0, MOST_TOKENS) for token in value)
    )


def _is_rank(value: Any) -> bool:
    return is_int(value, 1, 16384)


def _is_alpha(value: Any) -> bool:
    return is_number(value, 1e-6, 1e6)


CHECKS: dict[str, Callable[[Any], bool]] = {
    "r": _is_rank,
    "lora_alpha": _is_alpha,
    "lora_dropout": lambda value: is_number(value, 0, 1) and value < 1,
    "target_modules": _are_layers,
    "use_rslora": lambda value: isinstance(value, bool),
    "modules_to_save": _are_layers,
    "exclude_modules": _are_layers,
    "bias": lambda value: value in ("none", "all", "lora_only"),
    "rank_pattern": _of_layers(_is_rank),
    "alpha_pattern": _of_layers(_is_alpha),
    "revision": lambda value: isinstance(value, str) and len(value) <= 200,
    "trainable_token_indices": lambda value: _are_tokens(value) or _of_layers(_are_tokens)(value),
}
"""The options of `peft.LoraConfig` that are read, and what passes."""
OPTIONAL = CHECKS.keys() - {"r", "lora_alpha", "lora_dropout", "target_modules"}
