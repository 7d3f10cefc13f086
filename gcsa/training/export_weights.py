"""Weights as timm and its hub expect them: model.safetensors and config.json in one folder."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from timm.models import save_for_hf
from torch import nn


def save_pretrained_timm(model: nn.Module, out_dir: str | Path, **preprocessing: Any) -> Path:
    """Writes `model`, made by `timm.create_model`, so that `timm.create_model(f"local-dir:{out_dir}")` opens it.

    The model's keyword arguments travel along, and so does `preprocessing` in timm's terms: `input_size` (C, H, W)
    in pixels, `mean` and `std` of each channel on the 0..1 scale. The folder appears whole or not at all; an older
    one of that name is replaced. Returns the folder. Raises OSError if it cannot write.
    """
    out_dir = Path(out_dir)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}-", dir=out_dir.parent))
    try:
        save_for_hf(model, str(fresh), safe_serialization=True, data_config=preprocessing)
        if out_dir.exists():
            shutil.rmtree(out_dir)
        os.replace(fresh, out_dir)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out_dir
