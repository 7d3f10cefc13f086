"""Fixtures of all tests: a cache of kernel tables of their own, and a fixed seed."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def table_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every run builds its tables itself, so that none left behind by older code is tested instead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GCSA_CACHE", str(tmp_path_factory.mktemp("tables")))
        yield


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
