"""How many threads of the CPU to compute on: PyTorch's choice, and fewer where other programs keep the cores busy.

Threads of one product wait for each other. On cores that others use, two can therefore be slower than one, several times.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import torch

log = logging.getLogger(__name__)

TICKS = Path("/proc/stat")
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
    """The share of the cores that other programs keep busy, 0 to 1: the load average of the last minute, or what half a
    second shows where that is less, for the load may be of a program that has just ended, such as an earlier run. 0 where
    the system does not tell."""
    try:
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):  # Windows has none
        return 0.0
    if load < 0.25:
        return min(load, 1.0)
    return min(load, share_now(), 1.0)


def share_now() -> float:
    """The share of the cores' time that is not idle, over half a second; 1 where the system does not tell."""
    before = read_ticks()
    time.sleep(LOOK)
    after = read_ticks()
    if before is None or after is None or after[1] <= before[1]:
        return 1.0
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def read_ticks() -> tuple[int, int] | None:
    """Idle and all ticks of all cores since the start of the system; None outside Linux."""
    try:
        numbers = [int(word) for word in TICKS.read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(numbers[3:5]), sum(numbers)
