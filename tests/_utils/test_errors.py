"""User errors and their keys."""

import ast
import pickle
from pathlib import Path

import pytest

import gcsa
from gcsa._utils.errors import MissingExtraError, UserError, reworded
from tests.errors import raises

NAMES = {"UserError", "MissingExtraError", "Refused"}


@pytest.mark.parametrize("kind", [UserError, MissingExtraError])
def test_key_and_values_cross_processes(kind: type[UserError]) -> None:
    error = pickle.loads(pickle.dumps(kind("depth=0 must be 1 or more", "depth", value=0)))
    assert (type(error), str(error), error.key, error.values) == (
        kind,
        "depth=0 must be 1 or more",
        "depth",
        {"value": 0},
    )


def test_a_reworded_error_keeps_its_key() -> None:
    with raises("depth", value=0):
        raise reworded(UserError("no", "depth", value=0), "x.json: no", "weights")
    with raises("weights"):
        raise reworded(OSError("no"), "x.json: no", "weights")


def test_every_user_error_has_a_key() -> None:
    files = Path(gcsa.__file__).parent.rglob("*.py")
    calls = [node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    made = [call for call in calls if getattr(call.func, "id", "") in NAMES]
    assert len(made) > 500
    assert all(len(call.args) == 2 for call in made), [ast.unparse(call) for call in made if len(call.args) != 2]
