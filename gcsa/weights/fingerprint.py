"""Which base an adapter belongs to: adapters of two bases of one architecture have the same shapes, and fit both."""

from __future__ import annotations

from collections.abc import Collection
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
        name.replace(".base_layer.", ".").replace(".original_module.", "."): parameter.detach().double().cpu().flatten()
        for name, parameter in base.named_parameters()
        if ".lora_" not in name and ".modules_to_save." not in name
    }
    kept = sorted(name for name in parameters if not is_within(name, without))
    values = torch.cat([parameters[name] for name in kept])
    folded = pad(values, (0, -len(values) % PERIOD)).view(-1, PERIOD).sum(0)
    bits = torch.from_numpy(np.random.PCG64(0).random_raw(PERIOD).view(np.int64))
    sums = [(folded * (1 - 2 * (bits >> shift & 1))).sum() / values.norm() for shift in range(NUMBERS)]
    return PREFIX + " ".join(f"{number:.3f}" for number in sums)


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
