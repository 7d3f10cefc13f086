"""The pages of a PDF file as pictures, drawn by pdfium (extra `pdf`). Scripts in the file are not run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gcsa.images.files import BoundedFile
from gcsa.images.pixels import Pixels, Refused, from_pillow
from gcsa.images.source import ImageSource

START = b"%PDF-"
DPI = 300
MAX_SIDE = 6000
"""Pixels of the longer side of a picture: a page of A3 has 4,961, and a larger one is drawn with fewer than `DPI`."""


class PdfPage(ImageSource):
    """A page of an open document, on white paper, which is drawn when it is read."""

    def __init__(self, name: str, document: Any, page: int) -> None:
        self.name, self.page = name, document[page - 1]
        sides = self.page.get_size()
        self.scale = min(DPI / 72, MAX_SIDE / max(1, *sides))
        width, height = (math.ceil(side * self.scale) for side in sides)  # as pdfium rounds
        self.shape = (height, width)

    def window(self, top: int, left: int, bottom: int, right: int) -> Pixels:
        picture = self.page.render(scale=self.scale, may_draw_forms=False).to_pil().convert("RGB")
        pixels = from_pillow(picture)
        return pixels._replace(values=pixels.values[top:bottom, left:right])


@contextmanager
def open_document(file: BoundedFile) -> Iterator[Any]:
    """The document of pypdfium2 in an open file.

    Raises:
        Refused: pypdfium2 is not installed, or the file needs a password. RuntimeError: a file that is damaged.
    """
    try:
        from pypdfium2 import PdfDocument, PdfiumError
    except ImportError as error:
        raise Refused("is a PDF, which needs pypdfium2: pip install 'gcsa-vit[pdf]'", "pdf.missing") from error
    try:
        document = PdfDocument(file)
    except PdfiumError as error:
        if "password" not in str(error):
            raise
        raise Refused("is locked by a password: save it without one", "pdf.locked") from error
    try:
        yield document
    finally:
        document.close()
