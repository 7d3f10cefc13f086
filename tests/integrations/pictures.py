"""Pictures to turn: patches of tissue, of PatchCamelyon where GCSA_DATA is, else of the two that are stored."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from gcsa.images.prepare import Prepare

FILE = Path(os.environ.get("GCSA_DATA", "data")) / "pcam/camelyonpatch_level_2_split_valid_x.h5"
STORED = Path(__file__).parents[1] / "stored/tissue.png"
Array = np.ndarray[Any, Any]


def patches(count: int = 6) -> Array:
    """uint8 (count, 96, 96, 3)."""
    if not FILE.is_file():
        two = np.split(np.asarray(Image.open(STORED).convert("RGB")), 2, axis=1)
        return np.stack([np.roll(two[i % 2], 17 * (i // 2), (0, 1)) for i in range(count)])
    with h5py.File(FILE) as file:
        return file["x"][:count]


def poses(pixels: Array) -> list[Array]:
    """The four turns of pixels (H, W, C), and of their mirror image."""
    return [np.rot90(x, k).copy() for x in (pixels, pixels[:, ::-1]) for k in range(4)]


def largest_change(run: Callable[[Tensor], Tensor] | nn.Module, prepare: Prepare, pictures: Array) -> float:
    """|f(gx) - f(x)| / |f(x)|, the largest over pictures and poses."""
    worst = 0.0
    with torch.no_grad():
        for pixels in pictures:
            rows = run(torch.stack([prepare(pose) for pose in poses(pixels)])).flatten(1)
            worst = max(worst, ((rows - rows[0]).norm(dim=1) / rows[0].norm()).max().item())
    return worst
