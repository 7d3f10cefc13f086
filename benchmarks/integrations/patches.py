"""Real patches, turned and mirrored as files would be, and how much features of them change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from gcsa._utils.arrays import Array
from gcsa.data.storage import data_root
from gcsa.evaluation.audit import element_name
from gcsa.groups import group as make_group

RESULTS = Path(__file__).parents[2] / "benchmarks/results/integrations"
PATCHES = 400
Features = Callable[[Array], Array]
"""Of pictures uint8 (N, H, W, 3), in rows."""


def patches(count: int = PATCHES) -> Array:
    """The first patches uint8 (count, 96, 96, 3) of PatchCamelyon's validation split, or of the subset at hand."""
    with h5py.File(data_root(None) / "pcam/camelyonpatch_level_2_split_valid_x.h5") as file:
        found = file["x"][:count]
    if len(found) < count:
        raise ValueError(f"the validation split has {len(found)} patches, fewer than {count}")
    return found


def elements(mirrors: bool = True) -> dict[str, Callable[[Array], Array]]:
    """The quarter turns and reflections but the identity, each as a function of pictures (N, H, W, C)."""
    group = make_group("d4" if mirrors else "c4")

    def move(pictures: Array, g: int) -> Array:
        return np.ascontiguousarray(group.act_on_grid(torch.from_numpy(pictures), g, (1, 2)).numpy())

    return {element_name(group, g): partial(move, g=g) for g in group.exact_elements[1:]}


def largest_changes(features: Features, pictures: Array, mirrors: bool = True) -> dict[str, Any]:
    """How far rows move with their pictures, |f(gx) - f(x)| / |f(x)|: the largest over elements and pictures, and the median
    over pictures of the largest over elements."""
    upright = features(pictures)
    changes = [_change(features(move(pictures)), upright) for move in elements(mirrors).values()]
    worst = np.max(changes, axis=0)
    return {"numbers": upright.shape[1], "largest": float(worst.max()), "median": float(np.median(worst))}


def _change(turned: Array, upright: Array) -> Array:
    return np.linalg.norm(turned - upright, axis=1) / np.linalg.norm(upright, axis=1)
