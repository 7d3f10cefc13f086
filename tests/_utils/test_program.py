"""What an installation has, and what its user types: in a checkout, and where a wheel was installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from gcsa._utils import program as program_module, published as published_module
from gcsa._utils.program import program
from gcsa._utils.published import list_weights, published, shipped
from gcsa.training import results


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as a wheel installs it, within a repository of its user's and beside a conf/ of another package."""
    package = tmp_path / "site-packages" / "gcsa"
    for folder in ("_shipped/conf", "_shipped/weights/trained", "_shipped/weights/not-weights", "../conf"):
        (package / folder).mkdir(parents=True)
    (package / "_shipped/weights/trained/config.json").touch()
    for module in (program_module, published_module, results):
        monkeypatch.setattr(module, "PACKAGE", package)
    return package


def test_in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped("conf") == Path(__file__).parents[2] / "conf"
    assert program("train") == "python train.py"
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/gcsa-evaluate"])
    assert program("train") == "gcsa-train"


def test_in_a_wheel(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["a_script_of_the_users.py"])
    assert program("train") == "gcsa-train"
    assert shipped("conf") == wheel / "_shipped/conf"
    assert list_weights() == ["trained"]
    assert published("trained") == wheel / "_shipped/weights/trained"
    assert published("not-weights") is None


def test_the_repository_around_a_wheel_is_not_ours(wheel: Path, tmp_path: Path) -> None:
    identity = ["-c", "user.name=user", "-c", "user.email=user@example.org"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "theirs"], cwd=tmp_path, check=True)
    assert results.git_commit() is None
