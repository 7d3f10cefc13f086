"""How equivariant a model is: its logits, its stages, and its response to smooth images rotated by 45 degrees.

A model with a group is measured under the exact elements of that group: the rotations by multiples of 90 degrees and the
reflections in it, which map the pixel grid onto itself. A model without a group, such as any other timm model, is
measured under the quarter rotations, and its features are taken for scalar fields: maps that only move. So is a model
whose group has the identity as its only exact element (c1, c3, c5, ...).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gcsa.actions import Kind, act
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.evaluation.relative_error import relative_error
from gcsa.groups import Group, group as make_group


@dataclass(frozen=True)
class StageError:
    """Relative equivariance errors of one stage's features, as "regular" fields or as scalar "image" fields.

    `exact` is the largest over the exact elements; `at_45` is for smooth images rotated by 45 degrees, of the spatial
    mean of the features and relative to its spread over the images; None for regular fields of a group without it.
    """

    stage: int
    kind: Kind
    shape: tuple[int, ...]
    exact: float
    at_45: float | None


def group_of(model: nn.Module) -> tuple[Group, Kind]:
    """The group under whose exact elements a model is measured, and the kind of its features: the model's own group and
    kind ("regular" or "image"), or c4 and "image" for a model without a group or with no exact element but the identity."""
    group = getattr(model, "group", None)
    if isinstance(group, Group) and len(group.exact_elements) > 1:
        return group, getattr(model, "feature_kind", "regular")
    return make_group("c4"), "image"


def element_name(group: Group, g: int) -> str:
    """Such as "90 deg" or "reflection, 90 deg"."""
    flip, rotation = divmod(g, group.rotations)
    return f"{'reflection, ' if flip else ''}{360 * rotation / group.rotations:g} deg"


def invariance_errors(model: nn.Module, images: Tensor) -> dict[str, float]:
    """Relative change of the logits of images (B, C, H, W) under each exact element but the identity, by its name.

    The elements are those of `group_of`: a model of the trivial group is measured under the quarter rotations.
    """
    group, _ = group_of(model)
    with evaluation_mode(model) as device:
        images = images.to(device)
        upright = model(images)
        return {
            element_name(group, g): relative_error(model(act(images, group, g, "image")), upright)
            for g in group.exact_elements[1:]
        }


def invariance_error(model: nn.Module, images: Tensor) -> float:
    """The largest of `invariance_errors`."""
    return max(invariance_errors(model, images).values())


def smooth_images(count: int, channels: int, size: int, degrees: float = 0.0, seed: int = 0) -> Tensor:
    """Sums of 8 round Gaussians, (count, channels, size, size), rotated counter-clockwise by any angle exactly.

    Their standard deviation is 7.5 % of the side. The centres rotate, not the pixels, so nothing is resampled; nothing
    touches the border.
    """
    generator = torch.Generator().manual_seed(seed)
    radius, angle, height = torch.rand(3, count, channels, 8, 1, 1, generator=generator)
    angle = 2 * math.pi * angle + math.radians(degrees)
    x = torch.linspace(-1, 1, size) * (1 - 1 / size)
    y = -x[:, None]
    squared = (x - 0.5 * radius.sqrt() * angle.cos()) ** 2 + (y - 0.5 * radius.sqrt() * angle.sin()) ** 2
    return ((2 * height - 1) * torch.exp(-squared / (2 * 0.15**2))).sum(2)


def smooth_rotation_error(model: nn.Module, channels: int, size: int, degrees: float = 45.0, count: int = 16) -> float:
    """Change of the logits when smooth images rotate by an angle that the grid does not have, relative to their spread."""
    with evaluation_mode(model) as device:
        upright, rotated = (model(smooth_images(count, channels, size, d).to(device)) for d in (0.0, degrees))
    return _spread_error(rotated, upright)


def stage_errors(model: nn.Module, images: Tensor) -> list[StageError]:
    """Equivariance error of every stage on square images (B, C, H, H); empty where timm gives no intermediates."""
    if not hasattr(model, "forward_intermediates"):
        return []
    group, kind = group_of(model)
    channels, size = images.shape[1], images.shape[-1]
    with evaluation_mode(model) as device:
        images = images.to(device)
        upright = _features(model, images)
        regular: Kind = "regular"
        of_stem = getattr(model, "stem_levels", 0)
        kinds = [regular] * of_stem + [kind] * (len(upright) - of_stem)
        exact = [0.0] * len(upright)
        for g in group.exact_elements[1:]:
            rotated = _features(model, act(images, group, g, "image"))
            errors = [
                relative_error(r, act(u, group, g, kind)) for r, u, kind in zip(rotated, upright, kinds, strict=True)
            ]
            exact = list(map(max, exact, errors))
        smooth, smooth_rotated = (_features(model, smooth_images(16, channels, size, d).to(device)) for d in (0, 45))
        at_45 = [_mean_error(r, u, group, kind) for r, u, kind in zip(smooth_rotated, smooth, kinds, strict=True)]
    shapes = [tuple(u.shape[1:]) for u in upright]
    return [StageError(i + 1, *row) for i, row in enumerate(zip(kinds, shapes, exact, at_45, strict=True))]


def _features(model: nn.Module, images: Tensor) -> list[Tensor]:
    return model.forward_intermediates(images, output_fmt="NCHW", intermediates_only=True)  # type: ignore[operator]


def _mean_error(rotated: Tensor, upright: Tensor, group: Group, kind: Kind) -> float | None:
    rotated, upright = rotated.mean((2, 3)), upright.mean((2, 3))
    if kind == "regular":
        if group.rotations % 8:
            return None
        fibre = upright.unflatten(1, (group.order, -1))
        upright = group.act_on_fibre(fibre, group.rotations // 8, dim=1).flatten(1)
    return _spread_error(rotated, upright)


def _spread_error(actual: Tensor, expected: Tensor) -> float:
    # The mean over the images would hide an error: an untrained ViT's logits hardly depend on the image at all.
    mean = expected.mean(0)
    return relative_error(actual - mean, expected - mean)
