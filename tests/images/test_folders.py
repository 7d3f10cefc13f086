"""One walk: the user's own images, in one order, whatever else lies in a folder."""

import os
from pathlib import Path

from gcsa.images.folders import list_files, list_images

NAMES = ["a/B.PNG", "a/b.png", "a-b/1.tif", "10.png", "9.jpg"]
OTHERS = [
    "@eaDir/9.jpg",
    "__MACOSX/9.jpg",
    "#recycle/9.jpg",
    "$RECYCLE.BIN/9.jpg",
    "lost+found/9.jpg",
    ".git/9.jpg",
    "a/.b.png",
]
OTHERS += ["Thumbs.db", ".DS_Store", "._9.jpg", "note.txt", "png", "@eaDir/a/9.jpg"]


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_the_order_and_what_is_left_out(tmp_path: Path) -> None:
    touch(tmp_path, *NAMES, *OTHERS)
    (tmp_path / "0.png").mkdir()
    touch(tmp_path, "0.png/1.png")
    names = [path.relative_to(tmp_path).as_posix() for path in list_images(tmp_path, recursive=True)]
    assert names == ["10.png", "9.jpg", "0.png/1.png", "a/B.PNG", "a/b.png", "a-b/1.tif"]
    assert [path.name for path in list_images(tmp_path)] == ["10.png", "9.jpg"]
    assert [path.name for path in list_files(tmp_path, (".txt",))] == ["note.txt"]


def test_links(tmp_path: Path) -> None:
    """Folders are followed once and not in circles; a link to nothing is listed, so that its reader names it."""
    touch(tmp_path, "in/a/1.png", "elsewhere/2.png")
    (tmp_path / "in/a/circle").symlink_to(tmp_path / "in")
    (tmp_path / "in/b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/c.png").symlink_to(tmp_path / "missing.png")
    names = [path.relative_to(tmp_path / "in").as_posix() for path in list_images(tmp_path / "in", recursive=True)]
    assert names == ["c.png", "a/1.png", "b/2.png"]


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.png"
    try:
        open(name, "wb").close()
    except OSError:  # a file system that refuses them
        return
    assert [os.fsencode(path) for path in list_images(tmp_path)] == [name]
