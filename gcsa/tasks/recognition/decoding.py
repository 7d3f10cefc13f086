"""Connectionist temporal classification: class scores over time, and what they say (Graves et al. 2006).

Class 0 is the blank; a path of classes becomes text by merging repeats and then dropping blanks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLANK = 0


def ctc_loss(log_probs: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """The mean over lines of -log p(text) / characters.

    log_probs (B, T, classes); targets (sum of lengths,), the lines' classes one after the other; lengths (B,).
    """
    times = torch.full_like(lengths, log_probs.shape[1])
    return F.ctc_loss(log_probs.transpose(0, 1).float(), targets, times, lengths, BLANK, zero_infinity=True)


class Run(NamedTuple):
    """A character of the best path: its class, the time steps from `start` to before `end`, and its probability."""

    label: int
    start: int
    end: int
    probability: float


def greedy(log_probs: Tensor) -> tuple[list[Run], float]:
    """The characters of the best path of (T, classes), and its confidence between 0 and 1.

    The confidence is the geometric mean of two geometric means of the path's probabilities: over all time steps, and
    over those of characters alone. Blanks are easily certain and must not speak for a line by themselves.
    """
    best, path = log_probs.max(-1)
    emits = path != BLANK
    changes = path != F.pad(path[:-1], (1, 0), value=BLANK)
    changes[:1] = True
    bounds = [*changes.nonzero().flatten().tolist(), len(path)]
    labels, certain = path.tolist(), best.exp().tolist()
    runs = [
        Run(labels[start], start, end, max(certain[start:end]))
        for start, end in pairwise(bounds)
        if labels[start] != BLANK
    ]
    if not runs:
        return [], 0.0
    return runs, math.exp((float(best.mean()) + float(best[emits].mean())) / 2)


def beam_search(log_probs: Tensor, beams: int, classes_a_step: int = 12) -> list[int]:
    """The most probable classes of (T, classes), summed over their paths, by prefix beam search (Graves 2012)."""
    top, choices = log_probs.topk(min(classes_a_step, log_probs.shape[1]))
    # A prefix, and the log-probabilities of its paths that end in a blank and of those that do not.
    state: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for scores, indices in zip(top.tolist(), choices.tolist(), strict=True):
        after: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-math.inf, -math.inf])
        for prefix, (blank, label) in state.items():
            total = _log_add(blank, label)
            for score, index in zip(scores, indices, strict=True):
                if index == BLANK:
                    after[prefix][0] = _log_add(after[prefix][0], total + score)
                    continue
                extended = (*prefix, index)
                longer = after[extended]
                if prefix and prefix[-1] == index:
                    after[prefix][1] = _log_add(after[prefix][1], label + score)
                    longer[1] = _log_add(longer[1], blank + score)
                else:
                    longer[1] = _log_add(longer[1], total + score)
        ranked = sorted(after.items(), key=lambda item: _log_add(*item[1]), reverse=True)[:beams]
        state = {prefix: (blank, label) for prefix, (blank, label) in ranked}
    return list(next(iter(state)))


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
