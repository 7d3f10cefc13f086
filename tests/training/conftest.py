"""Runs take one thread, for two runs at once would take turns on the cores, and draw the rotation curves of few images."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from gcsa.tasks.classification.evaluate import summarize


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def few_images() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gcsa.tasks.classification.task.summarize", partial(summarize, seconds=0))
        yield
