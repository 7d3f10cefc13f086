"""What changes the answers of a network one step off the pixel grid: angles, shifts, blur, size, compression, stain and light.

Users rotate images by 3 degrees, scan them on another machine and save them as JPEG. No network is exact against that, so it is
measured: the share of images whose answer, or whose nearest image by features, is no longer that of the image as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from gcsa.actions import act
from gcsa.data.augment import gaussian_blur
from gcsa.data.colour import stained
from gcsa.data.compression import compressed
from gcsa.groups import group
from gcsa.images.resampling import resampled

Change = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) in 0..1 to images of the same shape."""


def jpeg(images: Tensor, quality: int) -> Tensor:
    """Images (B, C, H, W), of one channel or three, as JPEG of this quality gives them back."""
    return compressed(images, [quality] * len(images))


def restained(images: Tensor, factors: Sequence[float]) -> Tensor:
    """Images (B, 3, H, W) with the amounts of haematoxylin, eosin and a third stain multiplied."""
    return stained(images, images.new_tensor(factors).view(1, 3, 1, 1), images.new_zeros(1, 3, 1, 1)).clamp(0, 1)


def blurred(images: Tensor, sigma: float) -> Tensor:
    """Images (B, C, H, W) blurred by a Gaussian of `sigma` pixels."""
    return gaussian_blur(images, torch.full((len(images),), sigma))


def lit(images: Tensor, factor: float) -> Tensor:
    """Images brighter by a factor."""
    return (factor * images).clamp(0, 1)


def families(channels: int, steps: int = 48) -> dict[str, dict[str, Change]]:
    """The changes by family and name, for images of so many channels; angles are multiples of 360 / steps degrees. The first
    family holds the exact elements of d4, under which an exact network changes nothing."""
    d4 = group("d4")
    angles = [360 * k / steps for k in range(steps) if (360 * k / steps) % 90]
    found: dict[str, dict[str, Change]] = {
        "exact": {f"element {g}": partial(_element, g=g) for g in d4.exact_elements[1:]},
        "angle": {f"{angle:g} degrees": partial(resampled, degrees=angle) for angle in angles},
        "shift": {
            f"{x:g}, {y:g} pixels": partial(resampled, x=x, y=y)
            for x, y in ((0.5, 0), (0, 0.5), (0.5, 0.5), (1, 0), (0, 1), (2, 0), (0, 2))
        },
        "blur": {f"sigma {sigma}": partial(blurred, sigma=sigma) for sigma in (0.5, 0.7, 1.0)},
        "magnification": {f"{m:g} x": partial(resampled, magnification=m) for m in (0.8, 0.9, 1.1, 1.25)},
        "jpeg": {f"quality {quality}": partial(jpeg, quality=quality) for quality in (50, 80)},
        "stain": {
            f"haematoxylin {f[0]:g} x, eosin {f[1]:g} x": partial(restained, factors=f)
            for f in ((0.9, 1.1, 1.0), (1.1, 0.9, 1.0), (0.9, 0.9, 1.0), (1.1, 1.1, 1.0))
        },
        "brightness": {f"{b:g} x": partial(lit, factor=b) for b in (0.9, 1.1)},
    }
    if channels != 3:
        del found["stain"]
    if channels not in (1, 3):
        del found["jpeg"]
    return found


def _element(images: Tensor, g: int) -> Tensor:
    return act(images, group("d4"), g, "image")


def moved(rows: Tensor, reference: Tensor, kind: str) -> float:
    """The share of images with another answer, from scores (N, K) of a "classifier"; of an "embedding", from features (N, D), the
    share whose nearest image (cosine) among the unchanged ones is not the image itself."""
    if kind == "classifier":
        return float((rows.argmax(1) != reference.argmax(1)).float().mean())
    nearest = (F.normalize(rows, dim=1) @ F.normalize(reference, dim=1).T).argmax(1)
    return float((nearest != torch.arange(len(rows), device=rows.device)).float().mean())


@torch.inference_mode()
def off_grid(
    network: Callable[[Tensor], Tensor],
    batches: Iterable[Tensor],
    mean: Sequence[float],
    std: Sequence[float],
    kind: str,
    steps: int = 48,
    advance: Callable[[int], object] = lambda count: None,
) -> dict[str, dict[str, float]]:
    """How much each change of each of `families` moves: `moved`, by family and name.

    Args:
        network: normalised images (B, C, H, W) to scores or features (B, D).
        batches: normalised images.
        mean, std: of every channel, by which they are normalised.
        kind: "classifier" or "embedding".
        advance: called with the number of images that went through the network.
    """
    upright: list[Tensor] = []
    rows: dict[tuple[str, str], list[Tensor]] = {}
    for images in batches:
        centre, spread = (images.new_tensor(values).view(-1, 1, 1) for values in (mean, std))
        unit = images * spread + centre
        upright.append(network(images).float().cpu())
        for family, members in families(images.shape[1], steps).items():
            for name, change in members.items():
                seen = (change(unit) - centre) / spread
                rows.setdefault((family, name), []).append(network(seen).float().cpu())
                advance(len(images))
    reference = torch.cat(upright)
    found: dict[str, dict[str, float]] = {}
    for (family, name), parts in rows.items():
        found.setdefault(family, {})[name] = moved(torch.cat(parts), reference, kind)
    return found
