"""Linear against exact group attention as the tokens double from 256 to 64k: `python -m benchmarks.scaling.linear`.

Exact attention is left out where the size before, four times over, would take more than 20 seconds a call.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch

from benchmarks.common import CPU, alternate, arguments, save
from gcsa.layers.attention import GroupAttention
from gcsa.layers.favor import LinearAttention, attend_linear, orthogonal_features
from gcsa.layers.layout import to_tokens

ORDER, FIELDS, HEADS, FEATURES = 8, 32, 2, 64
TOKENS = [2**power for power in range(8, 17)]
LIMIT_MS = 20_000


def check_correctness() -> None:
    """The error against exact attention falls as 1 / sqrt(features), to a few parts in a hundred."""
    q, k, v = (torch.randn(1, 4, 4, ORDER, 4, dtype=torch.float64) / 2 for _ in range(3))
    exact = to_tokens(GroupAttention(ORDER, 4, 1)(q, k, v), 1, False)
    q, k, v = (to_tokens(x, 1, False) for x in (q, k, v))
    draws = [attend_linear(q, k, v, orthogonal_features(4096, 4).double()) for _ in range(10)]
    assert all((draw - exact).norm() < 0.05 * exact.norm() for draw in draws)


def crossing(linear: dict[int, float], exact: dict[int, float]) -> float | None:
    """Tokens from which linear attention is the faster, between two sizes by a straight line in the logarithms; None
    where it is the faster, or the slower, at all sizes."""
    gaps = [(tokens, math.log(exact[tokens] / linear[tokens])) for tokens in exact]
    for (below, slower), (above, faster) in pairwise(gaps):
        if slower < 0 <= faster:
            return below * (above / below) ** (slower / (slower - faster))
    return None


def main() -> None:
    args = arguments(__doc__)
    check_correctness()
    linear, exact = LinearAttention(ORDER, FIELDS, HEADS, FEATURES), GroupAttention(ORDER, FIELDS, HEADS)
    times: dict[str, dict[int, dict[str, float]]] = {"linear": {}, "exact": {}}
    for tokens in TOKENS:
        q, k, v = (torch.randn(1, tokens // ORDER // 8, 8, ORDER, FIELDS) for _ in range(3))
        sides: dict[str, Any] = {"linear": lambda q=q, k=k, v=v: linear(q, k, v)}
        before = times["exact"].get(tokens // 2, {"median_ms": 0.0 if tokens == TOKENS[0] else math.inf})
        if 4 * before["median_ms"] < LIMIT_MS:
            sides["exact"] = lambda q=q, k=k, v=v: exact(q, k, v)
        with torch.no_grad():
            for name, time in alternate(sides, args.repeats).items():
                times[name][tokens] = time
    medians = {name: {tokens: time["median_ms"] for tokens, time in side.items()} for name, side in times.items()}
    save(
        "linear",
        {
            "attention": f"order {ORDER}, {FIELDS} fields, {HEADS} heads, {FEATURES} features, batch 1, forward",
            "times by tokens": times,
            "factor per doubling": {t: medians["linear"][t] / medians["linear"][t // 2] for t in TOKENS[1:]},
            "linear overtakes exact at tokens": crossing(medians["linear"], medians["exact"]),
        },
        CPU,
    )


if __name__ == "__main__":
    main()
