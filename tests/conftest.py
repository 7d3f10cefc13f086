"""Fixtures of all tests: a fixed seed, one thread, and no log files left open."""

import logging
import os
from collections.abc import Iterator

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # processes of several threads each, side by side, slow one another tenfold
    os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch  # which reads it


@pytest.fixture(autouse=True)
def seed_and_thread() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # also after a test of other numbers


@pytest.fixture(autouse=True)
def log_files() -> Iterator[None]:
    """Closes the file that Hydra, run within a test, leaves the root logger writing to."""
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) is logging.FileHandler:  # pytest has one of a class of its own
            root.removeHandler(handler)
            handler.close()
