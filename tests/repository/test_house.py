"""The house keeps its shape: rooms of at most 12 files, files of at most 400 lines, tests in the rooms of what they test.

That a file imports only from its own rung or a lower one is held by lint-imports.
"""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = 12
LINES = 400
OF_NO_ROOM = {"fuzzing", "contracts", "repository"}
"""Folders of tests/ that belong to no room of gcsa: what other libraries expect of it, and what lies beside it."""


def python_files() -> list[Path]:
    """Those that git tracks, or would: no virtual environment, no output."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("needs git and a checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_room_is_too_full() -> None:
    rooms: dict[str, int] = {}
    for file in python_files():
        room = file.parent.relative_to(ROOT).as_posix()
        rooms[room] = rooms.get(room, 0) + 1
    assert {room: count for room, count in rooms.items() if count > FILES} == {}


def test_no_file_is_too_long() -> None:
    lengths = {file.relative_to(ROOT).as_posix(): len(file.read_text().splitlines()) for file in python_files()}
    assert {file: length for file, length in lengths.items() if length > LINES} == {}


def test_tests_are_in_the_rooms_of_what_they_test() -> None:
    folders = {
        file.parent.relative_to(ROOT / "tests").as_posix() for file in python_files() if ROOT / "tests" in file.parents
    }
    rooms = {
        file.parent.relative_to(ROOT / "gcsa").as_posix() for file in python_files() if ROOT / "gcsa" in file.parents
    }
    assert folders - OF_NO_ROOM - rooms == set()
