"""Which base an adapter belongs to: adapters of two bases of one architecture have the same shapes, and fit both."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

PREFIX = "weights:"
"""Of a fingerprint among the revisions that PEFT keeps in adapter_config.json."""
NUMBERS = 8
PERIOD = 65_521
"""Of the signs; a prime, so that they fall on other channels of each filter."""
TOLERANCE = 0.02
"""Largest difference of two fingerprints of one base. *Measured* on all published weights: bfloat16 changes a number by at
most 0.005, float16 by 0.001; ten epochs of further training by 0.6, the published adapters merged by 0.4 and more."""


def fingerprint(model: Any, without: Collection[str] = ()) -> str:
    """The relative sums of the parameters of `model` under `NUMBERS` fixed sequences of signs: another dtype changes little.

    model: with adapters or without.
    without: names of modules that are left out.
    """
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    parameters = {
        re.sub(r"\.(token_adapter|base_layer|original_module)(?=\.)", "", name): parameter.detach()
        .double()
        .cpu()
        .flatten()
        for name, parameter in base.named_parameters()
        if not re.search(r"\.(lora_\w+|modules_to_save|trainable_tokens_\w+)\.", name)
    }
    kept = sorted(name for name in parameters if not is_within(name, without))
    values = torch.cat([parameters[name] for name in kept])
    folded = pad(values, (0, -len(values) % PERIOD)).view(-1, PERIOD).sum(0)
    bits = torch.from_numpy(np.random.PCG64(0).random_raw(PERIOD).view(np.int64))
    sums = [(folded * (1 - 2 * (bits >> shift & 1))).sum() / values.norm() for shift in range(NUMBERS)]
    return PREFIX + " ".join(f"{number:.3f}" for number in sums)


def digest(network: Any, description: Mapping[str, Any], source: str) -> str:
    """What tells exactly these weights from all others, before they are folded: a hash of the tensors and of what is said of the network;
    `source`: its file or name, which counts where it has no tensors, as an ONNX file or a function."""
    tensors = network.state_dict() if hasattr(network, "state_dict") else {}
    found = hashlib.blake2b(json.dumps(dict(description), sort_keys=True, default=str).encode(), digest_size=16)
    for name, value in sorted(tensors.items()):
        found.update(name.encode())
        if isinstance(value, torch.Tensor):
            found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            found.update(str(value).encode())
    if not tensors:
        found.update(Path(source).read_bytes() if Path(source).is_file() else source.encode())
    return found.hexdigest()


def is_within(name: str, modules: Collection[str]) -> bool:
    """Whether the module or parameter `name` is one of `modules` or within one; PEFT takes the last parts of a name for it."""
    return any(f".{module}." in f".{name}." for module in modules)


def differ(first: str, second: str) -> bool:
    """Whether these are fingerprints of different weights; a revision of another kind differs from none, a damaged one from all."""
    if not (first.startswith(PREFIX) and second.startswith(PREFIX)):
        return False
    try:
        one, other = (np.array(text.removeprefix(PREFIX).split(), np.float64) for text in (first, second))
    except ValueError:
        return True
    return one.shape != other.shape or not bool((np.abs(one - other) <= TOLERANCE).all())
