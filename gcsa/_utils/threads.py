"""How many threads of the CPU to compute on: PyTorch's choice, and fewer where other programs keep the cores busy.

Threads of one product wait for each other. On cores that others use, two can therefore be slower than one, several times.
"""

from __future__ import annotations

import logging
import os

import psutil
import torch

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds


def choose_threads(asked: int | None) -> int:
    """`asked` where it is a number. Else PyTorch's own choice, or of these threads the share of the machine's cores that is
    free, at least one, with a line of log; OMP_NUM_THREADS counts as asked."""
    if asked is not None:
        return asked
    usual = torch.get_num_threads()
    if usual == 1 or "OMP_NUM_THREADS" in os.environ:
        return usual
    busy = busy_share()
    threads = min(usual, max(1, round(usual * (1 - busy))))
    if threads < usual:
        log.info(
            "other programs keep %.0f%% of the cores busy: computing on %d of %d threads (threads=%d takes them all)",
            100 * busy,
            threads,
            usual,
            usual,
        )
    return threads


def busy_share() -> float:
    """The share of the cores that other programs keep busy, 0 to 1: the load average of the last minute, or the use of the
    cores over half a second where that is less, for the load may be of a program that has just ended."""
    load = psutil.getloadavg()[0] / (os.cpu_count() or 1)
    return min(load, 1.0) if load < 0.25 else min(load, psutil.cpu_percent(LOOK) / 100, 1.0)
