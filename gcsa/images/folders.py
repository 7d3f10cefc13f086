"""The one walk through folders of images: every task and command lists files here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

SUFFIXES = (".png", ".jpg", ".jpeg", ".jp2", ".jpx", ".j2k", ".tif", ".tiff", ".webp", ".bmp", ".gif", ".ppm", ".pgm")
"""Of images, in small letters."""
SLIDES = (".svs", ".ndpi", ".mrxs", ".scn", ".bif", ".svslide", ".vms", ".vmu")
"""Of slides that OpenSlide reads, in small letters, each a file for itself or beside a folder of its own."""
ZARR = ".zarr"
"""Of a folder of OME-Zarr, which is one image."""
SYSTEM_NAMES = frozenset(
    (
        "@eadir",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "__macosx",
        "lost+found",
        "system volume information",
        "thumbs.db",
    )
)
"""What operating systems and network storage leave in folders, in small letters; beside it, any name that starts with a dot."""


def list_images(folder: str | os.PathLike[str], *, recursive: bool = False) -> list[Path]:
    """The images in `folder`, and with `recursive` below it: `list_files` with `SUFFIXES`."""
    return list_files(folder, SUFFIXES, recursive=recursive)


def list_files(folder: str | os.PathLike[str], suffixes: Sequence[str], *, recursive: bool = False) -> list[Path]:
    """The files in `folder` whose names end in one of `suffixes`, in small or capital letters, and with `recursive` those below it.

    The order is that of the folders, then that of the names, both by code point ("10.png" before "9.png"), so that it is the
    same on every machine. Hidden names and `SYSTEM_NAMES` are left out, and so are folders that are called like a file. A folder of
    OME-Zarr, whose name ends in .zarr, is one file, and is not looked into. Links to folders are followed, each folder once.
    A link to a file that is missing is listed: whoever reads it names it.
    """
    files: list[tuple[str, str]] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real not in seen:
            names += [name for name in folders if name.lower().endswith(ZARR) and ZARR in suffixes]
            files += [(parent, name) for name in names if is_visible(name) and name.lower().endswith(tuple(suffixes))]
        inside = [name for name in folders if is_visible(name) and not name.lower().endswith(ZARR)]
        folders[:] = sorted(inside) if recursive and real not in seen else []
        seen.add(real)
    return [Path(parent, name) for parent, name in sorted(files)]


def is_visible(name: str) -> bool:
    """Whether a file or folder of this name is the user's own."""
    return not name.startswith(".") and name.lower() not in SYSTEM_NAMES
