"""Class-balanced subsets, and the checks every split passes before a model sees it."""

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.data.loaders import ImageSource, seeded_generator

SPLIT_SEED = 0
"""Seeds what must not change between runs: the validation images, and the rotations of the digits."""
SPLIT_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
"""Which split a folder is, by its name in small letters."""


def strata(labels: Tensor) -> Tensor:
    """What a subset of rows is balanced over: classes (N,), of which -1, of images without a label, is one more; or nothing (zeros)
    where labels are several or numbers (N, K)."""
    if labels.ndim > 1:
        return labels.new_zeros(len(labels), dtype=torch.long)
    return labels - labels.min().clamp(max=0) if len(labels) else labels


def stratified_order(labels: Tensor, seed: int) -> Tensor:
    """A permutation (N,) of the rows of `labels` (N,), every prefix of which is class-balanced."""
    order = torch.randperm(len(labels), generator=seeded_generator(seed))
    shuffled = labels[order]
    by_class = torch.argsort(shuffled, stable=True)
    counts = torch.bincount(shuffled)
    first = (counts.cumsum(0) - counts)[shuffled[by_class]]
    quantile = torch.empty(len(labels), dtype=torch.float64)
    quantile[by_class] = (torch.arange(len(labels)) - first + 0.5).double() / counts[shuffled[by_class]]
    return order[torch.argsort(quantile, stable=True)]


def hold_out(labels: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Rows kept and rows held out, each in file order: a class-balanced `fraction`, the same in every run."""
    order = stratified_order(labels, SPLIT_SEED)
    count = round(fraction * len(labels))
    return order[count:].sort().values, order[:count].sort().values


def limited(labels: Tensor, limit: int | float, seed: int) -> Tensor:
    """Rows of a class-balanced subset: a fraction of all rows when `limit` is a float, a count when an int.

    Raises:
        ValueError: more rows than there are.
    """
    count = max(1, round(limit * len(labels))) if isinstance(limit, float) else limit
    if count > len(labels):
        raise UserError(
            f"limit_train={limit} asks for more than the {len(labels)} training images there are",
            "limit_train.too_many",
        )
    return stratified_order(labels, seed)[:count]


def balancing_weights(labels: Tensor, num_classes: int) -> Tensor:
    """Weights (K,) by which every class of labels (N,) counts as much; their mean over the images is 1."""
    counts = torch.bincount(labels, minlength=num_classes)
    return len(labels) / (num_classes * counts.clamp(min=1).double()).float()


def check_split(
    images: ImageSource, labels: Tensor, num_classes: int, source: str, label_source: str | None = None
) -> None:
    """Raise a ValueError naming its file where images (N, C, H, W) and labels (N,) cannot be trained on."""
    label_source = label_source or source
    if len(images) != len(labels) or not len(labels):
        there = "" if label_source == source else f"{label_source} "
        raise UserError(
            f"{source} holds {len(images)} images and {there}{len(labels)} labels: they must match, at least 1",
            "split.counts",
        )
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        raise UserError(
            f"{label_source} holds the label {int(wrong[0])}: labels must lie in 0..{num_classes - 1}", "split.label"
        )
    if isinstance(images, Tensor) and images.is_floating_point():
        bad = ~torch.isfinite(images).flatten(1).all(1)
        if bad.any():
            raise UserError(
                f"{source} holds NaN or infinite pixels, first in image {int(bad.nonzero()[0])}", "split.not_finite"
            )
        if images.min() < 0 or images.max() > 1:
            raise UserError(
                f"{source} holds pixels in {float(images.min()):g}..{float(images.max()):g}: expected 0..1",
                "split.range",
            )
