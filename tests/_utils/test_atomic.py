"""Writing a file: whole or not at all, and never over anything that is not a regular file."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gcsa._utils.atomic import check_writable, replacing, replacing_folder, write_json
from gcsa.evaluation.figures import save
from gcsa.tasks.classification.folder import write_features
from tests.errors import raises
from tests.limits import largest_file

matplotlib_figure = pytest.importorskip("matplotlib.figure").Figure


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def loop(path: Path) -> None:
    path.symlink_to(path)


def link_to_full(path: Path) -> None:
    path.symlink_to("/dev/full")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (Path.mkdir, "file.is_folder"),
    (fifo, "file.is_device"),
    (unix_socket, "file.is_device"),
    (link_to_full, "file.is_device"),
    (loop, "file.name"),
]
WRITERS: dict[str, Callable[[Path], object]] = {
    "replacing": lambda path: replacing(path).__enter__(),
    "check_writable": check_writable,
    "write_json": lambda path: write_json(path, {}),
    "figure": lambda path: save(matplotlib_figure(), path),
}


def identity(path: Path) -> tuple[int, ...]:
    """What tells a file from another one of its name; following a link changes its time of access."""
    state = path.lstat()
    return state.st_mode, state.st_ino, state.st_size, state.st_mtime_ns


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("make", "key"), REFUSED)
def test_what_is_no_file_is_refused_and_stays(
    make: Callable[[Path], object], key: str, writer: str, tmp_path: Path
) -> None:
    path = tmp_path / "target"
    make(path)
    before = identity(path)
    with raises(key):
        WRITERS[writer](path)
    assert identity(path) == before
    assert os.listdir(tmp_path) == ["target"]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("missing/file", FileNotFoundError, "there is no folder .*missing to write file into: create it first"),
        ("a\0b", ValueError, r"'.*a\\x00b' cannot be the name of a file: embedded null byte"),
        ("n" * 300, ValueError, "cannot be the name of a file: .*File name too long"),
        ("", ValueError, "is a folder: name a file"),
        ("..", ValueError, "is a folder: name a file"),
    ],
)
def test_names_that_cannot_be_files(name: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        check_writable(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_takes_no_files() -> None:
    """/proc refuses root as well."""
    with raises("folder.not_writable"):
        check_writable("/proc/file")


def test_the_file_appears_at_the_end_with_the_mode_of_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.umask(0o027)
    try:
        with replacing(path) as part:
            part.write_text("whole")
            part.chmod(0o600)  # as safetensors leaves it
            assert not path.exists()
    finally:
        os.umask(before)
    assert path.read_text() == "whole"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_the_older_file_is_there(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older")
    with pytest.raises(error), replacing(path) as part:  # noqa: PT012
        part.write_text("half")
        raise error
    assert path.read_text() == "older"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link, target = tmp_path / "link", tmp_path / "elsewhere" / "file"
    link.symlink_to(target)  # which is not there yet
    for text in ("first", "second"):
        with replacing(link) as part:
            part.write_text(text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert os.listdir(tmp_path / "elsewhere") == ["file"]


@pytest.mark.parametrize("writer", ["bytes", "write_json", "figure", "safetensors", "features"])
def test_a_full_disk_is_one_error_that_names_the_file(writer: str, tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk."""
    path = tmp_path / "file"
    with largest_file(2000), pytest.raises(OSError, match="File too large") as caught:  # noqa: PT012
        if writer == "bytes":
            with replacing(path) as part:
                part.write_bytes(bytes(5000))
        elif writer == "safetensors":
            with replacing_folder(path) as fresh:
                save_file({"weight": torch.zeros(5000)}, fresh / "file")
        elif writer == "features":
            with replacing(path) as part:
                write_features(part.with_suffix(".h5"), np.ones((50, 100)), ["a.png"] * 50, {})
        elif writer == "write_json":
            write_json(path, {"a": "b" * 5000})
        else:
            save(matplotlib_figure(), path)
    assert caught.value.filename == str(path)
    assert os.listdir(tmp_path) == []


def test_json_is_read_back_and_has_a_line_for_each_list_of_numbers_and_row(tmp_path: Path) -> None:
    content = {"é": [1, -2.5, 3e-7], "names": ["a", "b"], "file": "caf\udce9.png", "rows": [[1, 2], [3, 4]]}
    content |= {"table": [{"a": "x,  y", "b": None}, {"a": "{", "b": []}], "about": {"c": 1}}
    lines = write_json(tmp_path / "a.json", content).read_text(encoding="utf-8").splitlines()
    assert json.loads("\n".join(lines)) == content
    assert '  "é": [1, -2.5, 3e-07],' in lines
    assert '    {"a": "x,  y", "b": null},' in lines
    assert lines[-5:] == ["  ],", '  "about": {', '    "c": 1', "  }", "}"]
