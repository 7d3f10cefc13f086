"""What other frameworks leave behind in the process of the tests."""

import logging
from collections.abc import Iterator

import pytest


def loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in known if isinstance(logger, logging.Logger))]


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """lightly-train gives Lightning's loggers handlers of its own, whose streams end with the test. Pytest's stay."""
    before = {logger: logger.handlers[:] for logger in loggers()}
    yield
    logging.captureWarnings(False)
    for logger in loggers():
        for handler in logger.handlers[:]:
            if handler not in before.get(logger, []) and type(handler).__module__.startswith("logging"):
                logger.removeHandler(handler)
        for handler in before.get(logger, []) if logger is not logging.root else []:
            logger.addHandler(handler)
