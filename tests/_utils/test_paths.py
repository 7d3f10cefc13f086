"""Paths that users and files name."""

from pathlib import Path

import pytest

from gcsa._utils.paths import confined, expanded, read_bounded
from tests.errors import raises


def test_folders_called_like_numbers() -> None:
    assert expanded(2024) == Path("2024")


def test_confined(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "secret", folder / "1.png", folder / "sub" / "2.png", folder / "a:b.png"):
        path.write_text("x")
    (folder / "out").symlink_to(tmp_path)
    (folder / "link.png").symlink_to(tmp_path / "secret")
    (folder / "inner.png").symlink_to(folder / "1.png")
    (folder / "circle").symlink_to(folder / "circle")
    for name, found in (
        ("1.png", "1.png"),
        ("./1.png", "1.png"),
        ("sub/2.png", "sub/2.png"),
        ("sub\\2.png", "sub/2.png"),
        ("inner.png", "inner.png"),
        ("a:b.png", "a:b.png"),
    ):
        assert confined(folder, name) == folder / found
    for name in (
        *("", ".", "sub", "no.png", "..", "../secret", "sub/../../secret", "sub/../1.png", "..\\secret", "out/secret"),
        *(
            "link.png",
            str(tmp_path / "secret"),
            str(folder / "1.png"),
            "C:\\x.png",
            "\\\\host\\share\\x.png",
            "\\1.png",
        ),
        *("1.png\0", "a" * 5000, "\ud800", "circle", "circle/x", "~/x.png", "/dev/zero"),
    ):
        assert confined(folder, name) is None, name


def test_files_are_read_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bounded(tmp_path / "file", 5) == b"12345"
    with raises("file.too_large"):
        read_bounded(tmp_path / "file", 4)
    with raises("file.not_regular"):
        read_bounded(tmp_path, 4)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "nothing", 4)
