"""Accuracy and logits of a model when its images rotate or shift.

A rotation or a shift uncovers pixels. They take the median of the image's own border, channel by channel: black around
digits, the colour of the background in a photograph. Angles between multiples of 90 degrees are resampled (bilinear), so
a change there is that of the model and of the resampling together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode, functional

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int
from gcsa.evaluation.evaluation_mode import evaluation_mode

ANGLES = tuple(7.5 * i for i in range(48))
SHIFTS = tuple(range(-8, 9))
Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Curve:
    """Accuracy and relative logit change at each position: degrees counter-clockwise, or pixels."""

    positions: tuple[float, ...]
    accuracy: tuple[float, ...]
    logit_change: tuple[float, ...]
    images: int


def border_value(images: Tensor) -> Tensor:
    """Median of the border pixels of each channel, (B, C, 1, 1)."""
    rows, columns = images[..., [0, -1], :], images[..., :, [0, -1]]
    return torch.cat([rows.flatten(2), columns.flatten(2)], 2).median(2).values[..., None, None]


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Images (B, C, H, W) rotated counter-clockwise: exactly by multiples of 90 degrees, else bilinearly."""
    if degrees % 90 == 0:
        return images.rot90(round(degrees / 90), (-2, -1))
    border = border_value(images)
    return functional.rotate(images - border, degrees, InterpolationMode.BILINEAR) + border


def shift(images: Tensor, dx: int, dy: int, cyclic: bool = False) -> Tensor:
    """Images (B, C, H, W) moved by whole pixels, dx to the right and dy down; `cyclic` ones come back in."""
    if cyclic:
        return images.roll((dy, dx), (-2, -1))
    border = border_value(images)
    height, width = images.shape[-2:]
    around = F.pad(images - border, (abs(dx), abs(dx), abs(dy), abs(dy)))
    top, left = abs(dy) - dy, abs(dx) - dx
    return around[..., top : top + height, left : left + width] + border


class RotatedCopies(nn.Module):
    """Logarithms (B, classes) of class probabilities, averaged over copies of images (B, C, H, W) that are rotated evenly
    around the circle.

    This works for any classifier, at `copies` times the cost. With `invariant`, quarter rotations leave the scores of
    square images as they are; where 4 divides `copies`, one of each four copies is then computed.

    Raises ValueError unless `copies` is a whole number from 1 to 360.
    """

    def __init__(self, model: nn.Module, copies: int, invariant: bool = False) -> None:
        super().__init__()
        check_int("copies", copies, 1, 360)
        self.model = model
        computed = copies // 4 if invariant and copies % 4 == 0 else copies
        self.angles = [360 * i / copies for i in range(computed)]

    def forward(self, images: Tensor) -> Tensor:
        scores = torch.stack([self.model(rotate(images, angle)) for angle in self.angles])
        return scores.log_softmax(-1).logsumexp(0) - math.log(len(self.angles))


def response(model: nn.Module, batches: Batches, moves: Mapping[float, Callable[[Tensor], Tensor]]) -> Curve:
    """The curve over `moves`, each a function of images (B, C, H, W), keyed by its position.

    The logit change is |f(move x) - f(x)| / |f(x)| in the Euclidean norm over all images and classes.
    """
    correct, change = torch.zeros(len(moves)), torch.zeros(len(moves), dtype=torch.float64)
    norm, count = 0.0, 0
    with evaluation_mode(model) as device:
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            reference = model(images).double()
            norm += reference.square().sum().item()
            count += len(labels)
            for i, move in enumerate(moves.values()):
                logits = model(move(images)).double()
                correct[i] += (logits.argmax(1) == labels).sum().item()
                change[i] += (logits - reference).square().sum().item()
    accuracy = (correct / count).tolist()
    return Curve(tuple(moves), tuple(accuracy), tuple((change / norm).sqrt().tolist()), count)


def rotation_curve(model: nn.Module, batches: Batches, angles: Iterable[float] = ANGLES) -> Curve:
    """Response to rotations by `angles` in degrees."""
    return response(model, batches, {angle: partial(rotate, degrees=angle) for angle in angles})


def shift_curve(
    model: nn.Module, batches: Batches, axis: str, cyclic: bool = False, shifts: Iterable[int] = SHIFTS
) -> Curve:
    """Response to shifts in pixels along "x" (to the right) or "y" (down).

    Raises ValueError for another axis.
    """
    if axis not in ("x", "y"):
        raise UserError(f"unknown axis {axis!r}: choose x or y", "axis", axis=axis)
    x, y = int(axis == "x"), int(axis == "y")
    return response(model, batches, {s: partial(shift, dx=s * x, dy=s * y, cyclic=cyclic) for s in shifts})
