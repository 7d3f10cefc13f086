"""The pages of a PDF file as pictures, drawn by pdfium (extra `pdf`). Scripts in the file are not run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from gcsa.images.pixels import Refused

START = b"%PDF-"
DPI = 300
MAX_SIDE = 6000
"""Pixels of the longer side of a picture: a page of A3 has 4,961, and a larger one is drawn with fewer than `DPI`."""


def count_pages(path: Path) -> int:
    """The pages of a file. Raises as `page_size`."""
    with _document(path) as document:
        return len(document)


def page_size(path: Path, page: int) -> tuple[int, int]:
    """Width and height in pixels of the page of this number, from 1 on.

    Raises:
        ValueError: pypdfium2 is not installed; no such page. RuntimeError: a file that is damaged or needs a password.
    """
    with _document(path) as document:
        sides = document[page - 1].get_size()
        width, height = (math.ceil(side * _scale(sides)) for side in sides)  # as pdfium rounds
        return width, height


def read_page(path: Path, page: int) -> Image.Image:
    """The page of this number, from 1 on, on white paper. Raises as `page_size`."""
    with _document(path) as document:
        sheet = document[page - 1]
        picture: Image.Image = sheet.render(scale=_scale(sheet.get_size()), may_draw_forms=False).to_pil()
        return picture.convert("RGB")


def _scale(sides: tuple[float, float]) -> float:
    return min(DPI / 72, MAX_SIDE / max(1, *sides))


@contextmanager
def _document(path: Path) -> Iterator[Any]:
    try:
        from pypdfium2 import PdfDocument
    except ImportError as error:
        raise Refused("is a PDF, which needs pypdfium2: pip install 'gcsa-vit[pdf]'") from error
    document = PdfDocument(path)
    try:
        yield document
    finally:
        document.close()
