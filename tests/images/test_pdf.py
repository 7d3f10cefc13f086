"""Pages of PDF files, by pdfium."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gcsa.images import pdf
from gcsa.images.reader import count_pages, image_size, read_grey, read_image
from tests.errors import raises


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A page of 200 x 320 pixels at 300 dpi, black at its left, and one that is 10 m wide."""
    first = Image.new("L", (200, 320), 255)
    first.paste(0, (0, 0, 50, 320))
    first.save(tmp_path / "book.pdf", resolution=300, quality=100)
    Image.new("RGB", (500, 100), "red").save(tmp_path / "book.pdf", append=True, resolution=300 * 500 / 118_110)
    return tmp_path / "book.pdf"


def test_pages_are_pictures_at_300_dpi(book: Path) -> None:
    pytest.importorskip("pypdfium2")
    assert count_pages(book) == 2
    levels = read_grey(book, page=1)
    assert image_size(book, page=1) == levels.shape[::-1] == pytest.approx((200, 320), abs=1)
    assert levels[:, :45].max() < 20
    assert levels[:, 55:].min() > 235
    wide = read_image(book, 3, page=2)
    assert image_size(book, page=2) == wide.size
    assert max(wide.size) == pdf.MAX_SIDE
    assert np.asarray(wide)[wide.height // 2, 100].tolist() == pytest.approx([254, 0, 0], abs=3)


def test_what_is_refused(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged files, those without pypdfium2, and any PDF where a picture is wanted."""
    with raises("image.pdf"):
        read_image(book, 3)
    (tmp_path / "cut.pdf").write_bytes(book.read_bytes()[:100])
    assert count_pages(tmp_path / "cut.pdf") == 1
    with raises("image.unreadable"):
        read_image(tmp_path / "cut.pdf", 3, page=1)
    pikepdf = pytest.importorskip("pikepdf")
    with pikepdf.open(book) as document:
        document.save(tmp_path / "locked.pdf", encryption=pikepdf.Encryption(user="secret", owner="secret"))
    with raises("pdf.locked"):
        read_image(tmp_path / "locked.pdf", 3, page=1)
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    assert count_pages(book) == 1
    with raises("pdf.missing"):
        read_image(book, 3, page=1)
