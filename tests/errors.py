"""How tests expect errors that a user can mend: by what is at fault and not by the sentence, which may be reworded."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gcsa._utils.errors import UserError


@contextmanager
def raises(key: str, **values: Any) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expects a UserError of this key, which has these values and may have others."""
    with pytest.raises(UserError) as caught:
        yield caught
    error = caught.value
    assert (error.key, {name: error.values.get(name) for name in values}) == (key, values), error


def not_equivariant() -> pytest.RaisesExc[AssertionError]:
    """Expects that `assert_equivariant` finds something."""
    return pytest.raises(AssertionError, match="not equivariant")
