"""The features of a classifier for each object of a label map, as the principal components of all objects.

A crop is centred at the box of its object and has the same margin on opposite sides, so its features stay the same when the image and its
labels rotate or reflect by an element of the network's group that maps the pixel grid onto itself.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.ndimage import find_objects
from torch import Tensor

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.pixels import Pixels, to_8_bits
from gcsa.images.reader import as_picture
from gcsa.tasks.classification.predict import ClassificationPredictor

FEWEST = 3
"""Objects that have two directions to differ in."""


def embed_objects(
    predictor: ClassificationPredictor, picture: Array, labels: Array, side: int, components: int
) -> tuple[dict[str, Array], float]:
    """The columns `index` and `gcsa_1`, `gcsa_2`, ... of all objects, and the share of the variance that they hold.

    Args:
        predictor: whose features (D,) are taken.
        picture: (H, W) or (H, W, C), brought to 8 bits as in a file.
        labels: (H, W), 0 for background and a number for each object.
        side: of the square around an object, in pixels; 0 for that of the network's input.
        components: how many, at most; there are no more than objects without one, and than D.

    Raises:
        UserError: labels of another shape, fewer than `FEWEST` objects, and as `ClassificationPredictor.features`.
    """
    if labels.shape != picture.shape[:2]:
        raise UserError(
            f"the labels have the shape {labels.shape}, and the image {picture.shape[:2]}: choose labels of this image",
            "labels.shape",
        )
    boxes = {number: box for number, box in enumerate(find_objects(labels), 1) if box is not None}
    if len(boxes) < FEWEST:
        raise UserError(f"the labels hold {len(boxes)} objects: embedding compares {FEWEST} or more", "labels.too_few")
    channels, side = len(predictor.preprocess.mean), side or predictor.preprocess.size
    values = as_picture(picture, channels)
    white = None if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    pixels = np.asarray(to_8_bits(Pixels(values[..., 0] if channels == 1 else values, white), channels))
    rows = predictor.features([crop(pixels, box, side) for box in boxes.values()])
    scores, share = principal_components(rows, components)
    columns = {f"gcsa_{i}": values for i, values in enumerate(scores.T.numpy(), 1)}
    return {"index": np.array(list(boxes)), **columns}, share


def crop(picture: Array, box: tuple[slice, ...], side: int) -> Array:
    """The square of `side` pixels around the middle of `box`, a pixel higher or wider where margins would else differ. Beyond the
    picture its border is repeated."""
    grown = (side + (part.stop - part.start - side) % 2 for part in box)
    starts = ((part.start + part.stop - length, length) for part, length in zip(box, grown, strict=True))
    rows, columns = (
        np.clip(np.arange(start // 2, start // 2 + length), 0, most - 1)
        for (start, length), most in zip(starts, picture.shape[:2], strict=True)
    )
    return picture[np.ix_(rows, columns)]


def principal_components(rows: Tensor, components: int) -> tuple[Tensor, float]:
    """The scores (n, k) in float64 of rows (n, D) on their first k principal axes, and the share of the variance along these; k is
    `components` or what there is. Of each axis the largest entry is positive, so that scores do not depend on the solver."""
    centred = rows.double() - rows.double().mean(0)
    left, values, axes = torch.linalg.svd(centred, full_matrices=False)
    count = min(components, len(rows) - 1, rows.shape[1])
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))[:, 0]
    total = float(values.square().sum())
    share = float(values[:count].square().sum()) / total if total else 1.0
    return (left * values * largest.sign())[:, :count], share
