"""Pictures of a folder as a model takes them: what a file of narrow numbers is calibrated on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timm.data import create_transform
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.export.formats import fixed_height
from gcsa.images.folders import SUFFIXES, list_images
from gcsa.images.reader import read_image
from gcsa.tasks.recognition.data.line_image import fit_line, read_line

MOST = 256


def image_files(folder: str | Path) -> list[Path]:
    """All pictures in `folder` and below it. Raises UserError where there are none."""
    if files := list_images(folder, recursive=True):
        return files
    raise UserError(f"{folder} is no folder with images ({', '.join(SUFFIXES)})", "images.none")


def read_images(folder: str | Path, model: nn.Module, size: tuple[int, int, int]) -> Tensor:
    """(M, C, H, W), M up to 256, spread over all pictures in `folder` and below it, by name.

    For a classifier they are resized, cropped and normalised as its pretrained_cfg says, by timm; for a recogniser they are
    upright lines, cut or filled up with paper on the right. Raises ValueError for a folder without pictures, for a picture
    that cannot be read, naming it, and for a model that does not know how its images are normalised.
    """
    files = image_files(folder)
    files = files[:: -(-len(files) // MOST)]
    channels, height, width = size
    if fixed_height(model) is not None:
        stride = int(model.stride)  # type: ignore[arg-type]
        lines = (fit_line(read_line(file, height), height, stride, upright=True) for file in files)
        return torch.stack([F.pad(line, (0, width - line.shape[-1])) for line in lines])
    cfg: dict[str, Any] = getattr(model, "pretrained_cfg", {})
    if len(cfg.get("mean", ())) != channels:
        raise UserError(
            f"how images of {channels} channels are normalised is not known of this model: name a folder of weights",
            "weights.normalisation",
        )
    known = ("mean", "std", "interpolation", "crop_pct", "crop_mode")
    transform = create_transform(size, **{key: cfg[key] for key in known if cfg.get(key) is not None})
    return torch.stack([transform(read_image(file, channels)) for file in files])
