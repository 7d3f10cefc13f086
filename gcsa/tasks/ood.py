"""The OOD score: how unlike the images of training an image is, from its own statistics and the features of the network (OOD: out of
distribution).

Let x (D,) be these numbers of an image, each divided by its deviation over the training images, m and C their mean and covariance. The
Mahalanobis distance

    d(x)^2 = (x - m)^T C^-1 (x - m)

tells images apart that a network was not trained for (Lee et al. 2018, arXiv:1807.03888; one Gaussian for all classes). C is the
covariance of probabilistic PCA (Tipping and Bishop 1999, doi:10.1111/1467-9868.00196, equations 7 and 8): K axes, each with its own
variance, and one variance for all other directions. The OOD score of an image is d(x) divided by the distance that 99 % of the
validation images do not exceed. Neither the statistics nor the features change when an image rotates, so the OOD score does not either.

The features are means of the maps at all depths. What a network was trained for, it sees in whatever it is shown: it was a network of tissue
that called plankton tissue. So the statistics are of the image as the network gets it, before any learned filter (ADR 43).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa._utils.validation import is_number
from gcsa.weights import Weights

QUANTILE = 0.99
"""The share of the validation images whose OOD score is at most 1."""
AXES = 32
"""At most so many axes have a variance of their own."""
MOST_NUMBERS = 32_768
"""Of the axes in a weights file."""
FEWEST_TRAINING, FEWEST_VALIDATION = 20, 10
"""Images without which nothing is told: a covariance and a quantile of fewer mean little."""
MOST_IMAGES = 500
"""Of each split that are looked at."""
LEAST_VARIANCE = 1e-3
"""Of a direction, and of a number relative to the mean over all. Without it, rounding would count in directions in which training images do
not differ."""
BANDS = (1, 2, 4, 8)
"""Pixels between the taps of the low-pass filters of `image_statistics`."""
KEYS = ("axes", "limit", "mean", "rest", "scale", "variances")
"""Of the entry in a weights file."""
TENSORS = ("mean", "scale", "axes", "variances")
DIGITS = 7
"""Significant digits in a weights file."""


@dataclass(frozen=True)
class OODScorer:
    """From statistics and features (B, D) of images to their OOD score (B,): 1 and less for images like those of training.

    Attributes:
        mean, scale: (D,), mean and deviation; what follows is of numbers that are divided by their deviation.
        axes: (K, D), orthonormal.
        variances: (K,) along the axes.
        rest: the variance in all other directions.
        limit: the distance that is an OOD score of 1.
    """

    mean: Tensor
    scale: Tensor
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
        spread = float(rows.std(0).mean())
        if not (np.isfinite(rows).all() and bool(validation.isfinite().all()) and spread > 0):
            return None
        mean, scale = rows.mean(0), np.maximum(rows.std(0), LEAST_VARIANCE * spread)
        count = min(AXES, rows.shape[1], len(rows) // 4, max(1, MOST_NUMBERS // rows.shape[1]))
        pca = PCA(count, svd_solver="full").fit((rows - mean) / scale)
        variances = np.maximum(pca.explained_variance_, LEAST_VARIANCE)
        rest = max(float(pca.noise_variance_), LEAST_VARIANCE)
        found = cls(_as_tensor(mean), _as_tensor(scale), _as_tensor(pca.components_), _as_tensor(variances), rest, 1.0)
        limit = float(np.quantile(found(validation).numpy(), QUANTILE))
        return replace(found, limit=limit) if limit > 0 else None

    @classmethod
    def of(cls, weights: Weights) -> OODScorer | None:
        """What `weights` say, None where they say nothing. Raises UserError for a damaged entry."""
        entry = weights.entry("ood_score", _is_entry, f"an object of {', '.join(KEYS)} that fit together")
        if entry is None:
            return None
        mean, scale, axes, variances = (_as_tensor(entry[key]) for key in TENSORS)
        return cls(mean, scale, axes, variances, float(entry["rest"]), float(entry["limit"]))

    def entry(self) -> dict[str, Any]:
        """The entry `ood_score` of weights: plain numbers."""
        rounded = np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"))
        lists = {key: rounded(getattr(self, key).numpy()).tolist() for key in TENSORS}
        return lists | {key: float(rounded(getattr(self, key))) for key in ("rest", "limit")}

    def check(self, features: int) -> None:
        """Raises UserError unless the features of an image are so many."""
        if features != len(self.mean):
            raise UserError(
                f"the weights say what {len(self.mean)} numbers of training images are like, but of an image there are "
                f"{features}: their entry ood_score is of another network",
                "weights.features",
            )

    def __call__(self, features: Tensor) -> Tensor:
        """Features (B, D) to the OOD score (B,) of each image, float64 on the CPU. Raises UserError as `check`."""
        self.check(features.shape[1])
        centred = (features.detach().cpu().double() - self.mean) / self.scale  # some devices have no float64
        along = centred @ self.axes.T
        beyond = (centred.square().sum(1) - along.square().sum(1)).clamp_min(0)
        return ((along.square() / self.variances).sum(1) + beyond / self.rest).sqrt() / self.limit


def image_statistics(images: Tensor) -> Tensor:
    """How bright, contrasty, colourful and fine normalised images (B, C, H, W) are, (B, S), float32; the same in every pose of an image.

    Of each channel the mean and the logarithm of the deviation. Of two channels the logarithm of 1 - their correlation, and of the span of the
    channels at a pixel, each with deviation 1, the logarithms of mean and deviation: least where a picture is grey. Of the mean channel, skewness and the logarithm of the kurtosis, and of the bands between low-pass
    filters of growing width the logarithm of the energy, and how evenly it is spread (mean size over root mean square).
    """
    values = images.float().flatten(2)
    means, deviations = values.mean(2), values.std(2) + 1e-3
    found = [means, deviations.log()]
    channels = values.shape[1]
    if channels > 1:
        z = (values - means[:, :, None]) / deviations[:, :, None]
        unlike = [
            (z[:, i] - z[:, j]).square().mean(1) / 2 for i in range(channels) for j in range(i)
        ]  # 1 - correlation
        span = z.amax(1) - z.amin(1)
        found.append((torch.stack([*unlike, span.mean(1), span.std(1)], 1) + 1e-3).log())
    grey = images.float().mean(1, keepdim=True)
    z = (grey - grey.mean((2, 3), keepdim=True)) / (grey.std((2, 3), keepdim=True) + 1e-3)
    moments = [z.pow(3).mean((1, 2, 3)), (z.pow(4).mean((1, 2, 3)) + 1e-3).log()]
    taps = grey.new_tensor([1, 4, 6, 4, 1]) / 16
    filter = (taps[:, None] * taps)[None, None]
    for step in BANDS:
        low = F.conv2d(F.pad(grey, [2 * step] * 4, mode="replicate"), filter, dilation=step)
        size, energy = (grey - low).abs().mean((1, 2, 3)), (grey - low).square().mean((1, 2, 3))
        moments += [(energy + 1e-6).log(), size / (energy.sqrt() + 1e-3)]
        grey = low
    return torch.cat([*found, torch.stack(moments, 1)], 1)


@contextmanager
def reduced_outputs(modules: Iterable[nn.Module], reduce: Callable[[Any, Any], Tensor]) -> Iterator[list[Tensor]]:
    """Yields a list that gets `reduce` of the input and the output of these modules, in the order of their passes in this thread."""
    found: list[Tensor] = []
    thread = get_ident()

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if get_ident() == thread:  # another may predict with the same network
            found.append(reduce(inputs[0], output))

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
    mean, scale, axes, variances = (values[key] for key in TENSORS)
    return (
        _are_numbers(mean, -1e30, 1e30)
        and _are_numbers(scale, 1e-30, 1e30)
        and len(scale) == len(mean)
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
