"""A file is opened once on its way through a command."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from .conftest import Run

_opened: list[str] = []
_hooked = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _opened.append(os.fsdecode(arguments[0]))


@pytest.fixture
def opened() -> list[str]:
    """The names of the files that Python opens, in this order; an audit hook cannot be removed, and is added once."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hook)
    _opened.clear()
    return _opened


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize(
    ("command", "weights", "shape", "options"),
    [
        ("classify", "gcsa_pooled_small.pcam", (96, 96, 3), ()),
        ("embed", "gcsa_pooled_small.pcam", (96, 96, 3), ("--output", "x.h5")),
        ("orient", "", (450, 500), ()),
        ("segment", "gcsa_unet_tiny.nuclei", (64, 64), ("--output", "found", "--only", "csv")),
        ("transcribe", "gcsa_ocr_tiny.fr17", (40, 200), ()),
    ],
)
def test_an_image_is_opened_once(
    command: str,
    weights: str,
    shape: tuple[int, ...],
    options: tuple[str, ...],
    suffix: str,
    run: Run,
    tmp_path: Path,
    opened: list[str],
) -> None:
    values = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    Image.fromarray(values).save(tmp_path / f"image{suffix}")
    opened.clear()
    code, _, err = run(command, *filter(None, [weights]), tmp_path / f"image{suffix}", *options)
    assert code == 0, err
    # Pages are counted before the first one is read, of files that may have several.
    most = 2 if (command, suffix) == ("transcribe", ".tif") else 1
    assert opened.count(str(tmp_path / f"image{suffix}")) == most
