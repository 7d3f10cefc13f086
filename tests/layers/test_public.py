"""The public face of the layers: what `gcsa.layers` names can be imported, is documented, and is what models use."""

import inspect
from typing import Any

import pytest

import gcsa.layers


@pytest.mark.parametrize("name", gcsa.layers.__all__)
def test_is_documented(name: str) -> None:
    thing: Any = getattr(gcsa.layers, name)
    assert thing.__module__.startswith("gcsa.layers.")
    text = inspect.getdoc(thing)
    assert text
    assert thing.__doc__  # its own, not an inherited one
    if inspect.isclass(thing):
        assert inspect.getdoc(thing.forward)


def test_names_are_sorted_and_complete() -> None:
    """Every module with a docstring of its layout that a model file imports is there."""
    from gcsa.models import gcnn, gcsa as gcsa_family, gcsa_pyramid, gsa

    used = {
        name
        for module in (gcnn, gcsa_family, gcsa_pyramid, gsa)
        for name, thing in vars(module).items()
        if inspect.isclass(thing) and thing.__module__.startswith("gcsa.layers.")
    }
    assert used
    assert used <= set(gcsa.layers.__all__)
