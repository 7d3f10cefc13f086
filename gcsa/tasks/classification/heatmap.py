"""A heat map of a slide: the probability of a class for each patch, over the overview of the slide.

The last layer of a classifier makes class scores of the features, so that stored features are enough and no patch is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa._utils.paths import composed
from gcsa._utils.validation import listed
from gcsa.symmetry import Symmetrized
from gcsa.tasks.classification.patches import Patches
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.classification.targets import Numbers

ROWS = 4096
"""Patches whose probabilities are computed at a time."""
COLOURS = "coolwarm"
"""matplotlib's map from 0 to 1, as TRIDENT's heat maps have it."""
HATCH = 4
"""Pixels from one black line of patches that are unlike those of training to the next."""
LEGEND = 28
"""Height in pixels of the colour bar below the slide."""


def probability_of(predictor: ClassificationPredictor, name: str) -> Callable[[Any], Array]:
    """What makes of features (N, D), an array or a data set of HDF5, the probability (N,) of the class `name`.

    Raises UserError for another class, for weights for numbers, and for a network whose last layer makes no class scores.
    """
    if isinstance(predictor.target, Numbers) or not predictor.class_names:
        raise UserError(
            f"--heatmap {name} is the probability of a class, and these weights give none: leave it out",
            "heatmap.no_classes",
        )
    name = composed(name)
    if name not in predictor.class_names:
        raise UserError(
            f"--heatmap {name} is no class of these weights: choose {listed(predictor.class_names)}", "heatmap.class"
        )
    network: Any = predictor.network
    network = network.network if isinstance(network, Symmetrized) else network
    layer, column = network.get_classifier(), predictor.class_names.index(name)

    def probabilities(features: Any) -> Array:
        parts: list[Tensor] = []
        device = next(layer.parameters()).device
        with torch.inference_mode():
            for start in range(0, len(features), ROWS):
                rows = torch.from_numpy(np.array(features[start : start + ROWS]))
                parts.append(predictor.target.answers(layer(rows.to(device)).cpu())[:, column])
        return torch.cat(parts).numpy()

    return probabilities


def draw_heatmap(
    patches: Patches,
    shape: tuple[int, int],
    values: Array,
    name: str,
    unlike: Array | None = None,
    side: int = 1024,
) -> NDArray[np.uint8]:
    """A picture (h, w, 3) of a slide of `shape`, at most `side` pixels wide and high, whose patches are half covered by the colour of
    `values` (n,) from 0 to 1; those that are `unlike` (n,) the images of training are hatched. Below it stands what this means."""
    image = Image.fromarray(patches.picture)
    image.thumbnail((side, side))
    picture = np.asarray(image).astype(np.float32)
    factors = np.array(picture.shape[:2]) / np.array(shape)
    edges = np.round(np.stack([patches.corners, patches.corners + patches.extent]) * factors).astype(int)
    colours = 255 * colormaps[COLOURS](values)[:, :3]
    hatch = np.add.outer(*map(np.arange, picture.shape[:2])) % HATCH == 0
    hatched = np.zeros(len(values), bool) if unlike is None else unlike
    for (top, left), (bottom, right), colour, crossed in zip(*edges, colours, hatched, strict=True):
        part = slice(top, max(bottom, top + 1)), slice(left, max(right, left + 1))
        picture[part] = (picture[part] + colour) / 2
        if crossed:
            picture[part][hatch[part]] = 0
    name = f"{name} (hatched: OOD score above 1)" if hatched.any() else name
    return np.concatenate([picture.round().astype(np.uint8), _legend(picture.shape[1], name)])


def _legend(width: int, name: str) -> NDArray[np.uint8]:
    """A bar (LEGEND, width, 3) of the colours, with its ends and `name` below."""
    ramp = 255 * colormaps[COLOURS](np.linspace(0, 1, width))[:, :3]
    bar = np.full((LEGEND, width, 3), 255, np.uint8)
    bar[2 : LEGEND // 2] = ramp.round()
    image = Image.fromarray(bar)
    pen, below = ImageDraw.Draw(image), LEGEND // 2 + 1
    pen.text((2, below), "0", "black")
    pen.text((width // 2, below), name.encode("latin-1", "replace").decode("latin-1"), "black", anchor="ma")
    pen.text((width - 2, below), "1", "black", anchor="ra")
    return np.asarray(image)


def save_heatmap(file: Path, picture: NDArray[np.uint8]) -> None:
    """Writes the picture as PNG."""
    Image.fromarray(picture).save(file, format="PNG")
