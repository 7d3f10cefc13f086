"""Learning-rate schedules as pure functions of the step, so that a resumed run continues exactly.

Each returns the factor on the peak learning rate, and needs no state beyond the step that Lightning stores.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float

SCHEDULES = ("cosine", "one_cycle", "exponential", "constant")
FLAT = 3 / 8
"""The share of a run in which `exponential` keeps its peak."""


def cosine(step: int, total: int, warmup: int, final: float) -> float:
    """Linear warm-up over `warmup` steps, then half a cosine from 1 to `final` (Loshchilov & Hutter 2017)."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done))


def one_cycle(step: int, total: int, warmup: int, final: float, start: float = 1 / 25) -> float:
    """Half a cosine from `start` up to 1 over `warmup` steps, then one down to `final`.

    The learning-rate half of Smith & Topin 2018; momentum stays as the optimizer was given it.
    """
    if step < warmup:
        return 1 - (1 - start) * 0.5 * (1 + math.cos(math.pi * step / warmup))
    return cosine(step, total, warmup, final)


def exponential(step: int, total: int, warmup: int, final: float) -> float:
    """Linear warm-up over `warmup` steps, then 1 for `FLAT` of the run, then an exponential fall to `final`.

    With a final share of 0.8^25 it is that of Weiler & Cesa 2019 (arXiv:1911.08251): 15 epochs, then 0.8 times as much each
    of 25 more.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    flat = max(warmup, round(FLAT * total))
    done = min(1.0, max(0.0, (step - flat) / max(1, total - flat)))
    return max(final, 1e-12) ** done


def constant(step: int, total: int, warmup: int, final: float) -> float:
    """Linear warm-up over `warmup` steps, then 1; `total` and `final` have no effect."""
    return min(1.0, (step + 1) / (warmup + 1))


def make_schedule(name: str, total: int, warmup: float, final: float, **unknown: Any) -> Callable[[int], float]:
    """The schedule `name` over `total` optimizer steps; `warmup` is the fraction of them spent rising.

    Raises ValueError for an unknown name or option, and for fractions outside [0, 1].
    """
    if unknown:
        raise UserError(
            f"unknown option optimizer.schedule.{min(unknown)}: there are name, warmup and final", "schedule.option"
        )
    if name not in SCHEDULES:
        raise UserError(f"unknown schedule {name!r}: choose one of {', '.join(SCHEDULES)}", "schedule.name")
    for key, value in {"warmup": warmup, "final": final}.items():
        check_float(f"optimizer.schedule.{key}", value, 0, 1)
    shape = {"cosine": cosine, "one_cycle": one_cycle, "exponential": exponential, "constant": constant}[name]
    return partial(shape, total=total, warmup=round(warmup * total), final=final)
