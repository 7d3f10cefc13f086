import logging
import os

import psutil
import pytest
import torch

from gcsa._utils.threads import choose_threads


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores, on which PyTorch takes four threads and nobody asks for another number."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


def loaded(monkeypatch: pytest.MonkeyPatch, average: float, now: float = 1.0) -> None:
    monkeypatch.setattr(psutil, "getloadavg", lambda: (average, 0.0, 0.0))
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 100 * now)


@pytest.mark.parametrize(
    ("average", "now", "expected"),
    [(0.0, 1.0, 4), (0.4, 1.0, 4), (2.0, 0.5, 2), (3.9, 1.0, 1), (40.0, 1.0, 1), (4.0, 0.0, 4), (4.0, 0.25, 3)],
)
def test_the_default_follows_the_load(
    average: float, now: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(monkeypatch, average, now)
    assert choose_threads(None) == expected


def test_fewer_threads_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loaded(monkeypatch, 0.0)
    choose_threads(None)
    assert caplog.messages == []
    loaded(monkeypatch, 3.0, 0.75)
    choose_threads(None)
    assert caplog.messages == [
        "other programs keep 75% of the cores busy: computing on 1 of 4 threads (threads=4 takes them all)"
    ]


def test_what_is_asked_for_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch, 40.0)
    assert choose_threads(3) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert choose_threads(None) == 4
