"""What an installation has: in a checkout, and where a wheel was installed; and what its user types to train."""

import subprocess
import sys
from pathlib import Path

import pytest

from gcsa._utils import published as published_module
from gcsa._utils.program import train_command
from gcsa._utils.published import list_weights, published, shipped
from gcsa.training import results


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as a wheel installs it, within a repository of its user's and beside a conf/ of another package."""
    package = tmp_path / "site-packages" / "gcsa"
    for folder in ("_shipped/conf", "_shipped/weights/trained", "_shipped/weights/not-weights", "../conf"):
        (package / folder).mkdir(parents=True)
    (package / "_shipped/weights/trained/config.json").touch()
    for module in (published_module, results):
        monkeypatch.setattr(module, "PACKAGE", package)
    return package


def test_in_a_checkout() -> None:
    assert shipped("conf") == Path(__file__).parents[2] / "conf"


def test_what_is_typed_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    for started, expected in (
        ("bin/gcsa", "gcsa train"),
        ("notebook.py", "gcsa train"),
        ("../train.py", "python ../train.py"),
    ):
        monkeypatch.setattr(sys, "argv", [started])
        assert train_command("data=digits", "x=[a b]") == f"{expected} data=digits 'x=[a b]'"


def test_in_a_wheel(wheel: Path) -> None:
    assert shipped("conf") == wheel / "_shipped/conf"
    assert list_weights() == ["trained"]
    assert published("trained") == wheel / "_shipped/weights/trained"
    assert published("not-weights") is None


def test_the_repository_around_a_wheel_is_not_ours(wheel: Path, tmp_path: Path) -> None:
    identity = ["-c", "user.name=user", "-c", "user.email=user@example.org"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "theirs"], cwd=tmp_path, check=True)
    assert results.git_commit() is None
