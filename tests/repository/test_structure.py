"""Tests stand in the packages of what they test, and code is finished. lint-imports holds the order of the layers.

The other files of this folder test what lies beside gcsa: benchmarks, documents, notebooks and the wheel.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_NO_PACKAGE = {"fuzzing", "contracts", "repository", "stored"}
"""Folders of tests/ that belong to no package of gcsa: what other libraries expect of it, and what lies beside it."""


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """The Python files that git tracks, or would: no virtual environment, no output."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("needs git and a checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_tests_are_in_the_packages_of_what_they_test(files: list[Path]) -> None:
    def folders(top: str) -> set[str]:
        return {file.parent.relative_to(ROOT / top).as_posix() for file in files if ROOT / top in file.parents}

    assert folders("tests") - OF_NO_PACKAGE - folders("gcsa") == set()


def test_no_open_end_is_marked(files: list[Path]) -> None:
    marks = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + r"X)\b")
    assert [str(file) for file in files if marks.search(file.read_text(encoding="utf-8"))] == []
