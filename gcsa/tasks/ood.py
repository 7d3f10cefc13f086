"""The OOD score: how unlike the images of training an image is, from the features of the network (OOD: out of distribution).

Let x (D,) be the features of an image, m and C mean and covariance of those of training images. The Mahalanobis distance

    d(x)^2 = (x - m)^T C^-1 (x - m)

tells images apart that a network was not trained for (Lee et al. 2018, arXiv:1807.03888; one Gaussian for all classes). C is the
covariance of probabilistic PCA (Tipping and Bishop 1999, doi:10.1111/1467-9868.00196, equations 7 and 8): K axes, each with its own
variance, and one variance for all other directions. The OOD score of an image is d(x) divided by the distance that 99 % of the
validation images do not exceed. Features that do not change when an image rotates give an OOD score that does not change either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa._utils.validation import is_number
from gcsa.weights import Weights

QUANTILE = 0.99
"""The share of the validation images whose OOD score is at most 1."""
AXES = 16
"""At most so many axes have a variance of their own."""
MOST_NUMBERS = 32_768
"""Of the axes in a weights file."""
FEWEST_TRAINING, FEWEST_VALIDATION = 20, 10
"""Images without which nothing is told: a covariance and a quantile of fewer mean little."""
MOST_IMAGES = 500
"""Of each split that are looked at."""
LEAST_VARIANCE = 1e-3
"""Of a direction, relative to the mean over all. Without it, rounding would count in directions in which training images do not differ."""
KEYS = ("axes", "limit", "mean", "rest", "variances")
"""Of the entry in a weights file."""
DIGITS = 7
"""Significant digits in a weights file."""


@dataclass(frozen=True)
class OODScorer:
    """From features (B, D) of images to their OOD score (B,): 1 and less for images like those of training.

    Attributes:
        mean: (D,).
        axes: (K, D), orthonormal.
        variances: (K,) along the axes.
        rest: the variance in all other directions.
        limit: the distance that is an OOD score of 1.
    """

    mean: Tensor
    axes: Tensor
    variances: Tensor
    rest: float
    limit: float

    @classmethod
    def fit(cls, training: Tensor, validation: Tensor) -> OODScorer | None:
        """From features (N, D) of training and (M, D) of validation images; None for too few images, and for features that are
        not finite or do not differ."""
        from sklearn.decomposition import PCA  # takes a second, which a command that only predicts does not need

        if len(training) < FEWEST_TRAINING or len(validation) < FEWEST_VALIDATION:
            return None
        rows = training.double().cpu().numpy()
        least = LEAST_VARIANCE * float(rows.var(0).mean())
        if not (np.isfinite(rows).all() and bool(validation.isfinite().all()) and least > 0):
            return None
        count = min(AXES, rows.shape[1], len(rows) // 4, max(1, MOST_NUMBERS // rows.shape[1]))
        pca = PCA(count, svd_solver="full").fit(rows)
        variances = np.maximum(pca.explained_variance_, least)
        mean, axes = _as_tensor(pca.mean_), _as_tensor(pca.components_)
        found = cls(mean, axes, _as_tensor(variances), max(float(pca.noise_variance_), least), 1.0)
        limit = float(np.quantile(found(validation).numpy(), QUANTILE))
        return cls(found.mean, found.axes, found.variances, found.rest, limit) if limit > 0 else None

    @classmethod
    def of(cls, weights: Weights) -> OODScorer | None:
        """What `weights` say, None where they say nothing. Raises UserError for a damaged entry."""
        entry = weights.entry("ood_score", _is_entry, f"an object of {', '.join(KEYS)} that fit together")
        if entry is None:
            return None
        mean, axes, variances = (_as_tensor(entry[key]) for key in ("mean", "axes", "variances"))
        return cls(mean, axes, variances, float(entry["rest"]), float(entry["limit"]))

    def entry(self) -> dict[str, Any]:
        """The entry `ood_score` of weights: plain numbers."""
        rounded = np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"))
        lists = {key: rounded(getattr(self, key).numpy()).tolist() for key in ("mean", "axes", "variances")}
        return lists | {key: float(rounded(getattr(self, key))) for key in ("rest", "limit")}

    def check(self, features: int) -> None:
        """Raises UserError unless the features of an image are so many."""
        if features != len(self.mean):
            raise UserError(
                f"the weights say what {len(self.mean)} features of training images are like, but the network gives "
                f"{features}: their entry ood_score is of another network",
                "weights.features",
            )

    def __call__(self, features: Tensor) -> Tensor:
        """Features (B, D) to the OOD score (B,) of each image, float64 on the CPU. Raises UserError as `check`."""
        self.check(features.shape[1])
        centred = features.detach().cpu().double() - self.mean  # some devices have no float64
        along = centred @ self.axes.T
        beyond = (centred.square().sum(1) - along.square().sum(1)).clamp_min(0)
        return ((along.square() / self.variances).sum(1) + beyond / self.rest).sqrt() / self.limit


@contextmanager
def reduced_outputs(modules: Iterable[nn.Module], reduce: Callable[[Any], Tensor]) -> Iterator[list[Tensor]]:
    """Yields a list that gets `reduce` of each output of these modules, in the order of their passes in this thread."""
    found: list[Tensor] = []
    thread = get_ident()

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if get_ident() == thread:  # another may predict with the same network
            found.append(reduce(output))

    hooks = [module.register_forward_hook(keep) for module in modules]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _is_entry(values: Any) -> bool:
    """Whether these plain values, from a file, are those of `OODScorer.entry`."""
    if not isinstance(values, dict) or values.keys() != set(KEYS):
        return False
    mean, axes, variances = (values[key] for key in ("mean", "axes", "variances"))
    return (
        _are_numbers(mean, -1e30, 1e30)
        and _are_numbers(variances, 1e-30, 1e30)
        and isinstance(axes, list)
        and len(axes) == len(variances)
        and all(_are_numbers(axis, -1.001, 1.001) and len(axis) == len(mean) for axis in axes)
        and all(is_number(values[key], 1e-30, 1e30) for key in ("rest", "limit"))
    )


def _are_numbers(values: Any, low: float, high: float) -> bool:
    return (
        isinstance(values, list) and 1 <= len(values) <= MOST_NUMBERS and all(is_number(v, low, high) for v in values)
    )


def _as_tensor(values: Array | list[Any]) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)
