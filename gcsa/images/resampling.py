"""Rotations, sizes and shifts between the pixels, for batches of images."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor


def resampled(
    images: Tensor, degrees: float = 0.0, magnification: float = 1.0, x: float = 0.0, y: float = 0.0
) -> Tensor:
    """Images (B, C, H, W) rotated counter-clockwise about their centre, magnified and shifted by pixels, bilinearly, continued by reflection."""
    angle = math.radians(degrees)
    cos, sin = math.cos(angle) / magnification, math.sin(angle) / magnification
    height, width = images.shape[-2:]
    aspect = height / width
    matrix = [[cos, -sin * aspect, 2 * x / width], [sin / aspect, cos, 2 * y / height]]
    grid = F.affine_grid(images.new_tensor(matrix).expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
