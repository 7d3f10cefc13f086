"""A searchable PDF says what was read, in its order, where it stands: read back by pdfium."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ocrmypdf")
pytest.importorskip("pypdfium2")
import pypdfium2 as pdfium
from PIL import Image

from gcsa.cli.transcribe import main
from gcsa.tasks.recognition.data.cutting import rotate_points
from gcsa.tasks.recognition.pages.inputs import Source
from gcsa.tasks.recognition.pages.output import check_pages
from gcsa.tasks.recognition.pages.pdf import DPI, scan_dpi, searchable_pdf
from gcsa.tasks.recognition.pages.placed import PlacedLine, PlacedPage
from gcsa.tasks.recognition.pages.words import Box, Word, box_of, upright_points
from gcsa.tasks.recognition.reading import Reading
from tests.errors import raises
from tests.tasks.recognition.test_page_text import write_page

SIZE = (900, 600)
"""Of an upright page."""
TEXTS = ("Ceſt l’été où naît", "Œuvre « ægrè » Þȝ", "Straße — müſſen", "Ēn ſecond")  # noqa: RUF001
"""Two columns of two lines, in reading order. No ligatures: pdfium reads them as letters."""
PLACES = ((40, 100), (40, 160), (480, 100), (480, 160))
SKEW = 0.05
HEIGHT, LETTER = 30, 20


def placed(orientation: int, skew: float, image: Path) -> PlacedPage:
    """Lines of words of 20 pixels a letter, whose baseline lies 8 pixels above the lower edge, rotated by `orientation` degrees."""

    def on_page(box: Box) -> Box:
        return box_of(rotate_points((box[:2], box[2:]), orientation, SIZE[::-1]))

    lines = []
    for text, (left, top) in zip(TEXTS, PLACES, strict=True):
        words, x = [], left
        for word in text.split():
            y = round(top + skew * (x - left))
            words.append(Word(word, 0.9, on_page((x, y, x + LETTER * len(word), y + HEIGHT))))
            x += LETTER * (len(word) + 1)
        box = (left, top, x - LETTER, round(top + HEIGHT + skew * (x - left)))
        ends = [(float(end), top + HEIGHT - 8 + skew * (end - left)) for end in (left, x)]
        upright = upright_points(rotate_points(ends, orientation, SIZE[::-1]), orientation)
        slope, height = np.polyfit(*np.array(upright).T, 1)
        reading = Reading(text, 0.9, orientation)
        lines.append(PlacedLine(reading, on_page(box), words, "", (float(slope), float(height))))
    size = SIZE if orientation in (0, 180) else SIZE[::-1]
    Image.new("L", size, 230).save(image, dpi=(200, 200))
    return PlacedPage(image, None, size, lines)


def read_back(content: bytes) -> tuple[list[str], list[Box], int]:
    """The lines of a PDF, the boxes of its words in pixels of the picture, and its rotation."""
    page = pdfium.PdfDocument(content)[0]
    text = page.get_textpage()
    scale, height = 200 / 72, page.get_mediabox()[3]
    boxes: list[list[tuple[float, float]]] = [[]]
    for i in range(text.count_chars()):
        if text.get_text_range(i, 1).isspace():
            boxes.append([])
        else:
            left, bottom, right, top = text.get_charbox(i, loose=True)
            boxes[-1] += [(left * scale, (height - top) * scale), (right * scale, (height - bottom) * scale)]
    lines = [line.strip() for line in text.get_text_range().splitlines()]
    return [line for line in lines if line], [box_of(corners) for corners in boxes if corners], page.get_rotation()


@pytest.mark.parametrize("orientation", [0, 90, 180, 270])
def test_text_order_and_places(orientation: int, tmp_path: Path) -> None:
    page = placed(orientation, 0.0, tmp_path / "1.png")
    lines, boxes, rotation = read_back(searchable_pdf(page, "weights"))
    assert rotation == orientation, "it opens upright"
    assert lines == list(TEXTS)
    expected = [word.box for line in page.lines for word in line.words]
    along, across = ([0, 2], [1, 3]) if orientation in (0, 180) else ([1, 3], [0, 2])
    found, true = np.array(boxes), np.array(expected)
    assert np.abs(found - true)[:, along].max() <= 3
    assert np.abs(found - true)[:, across].max() <= 12


@pytest.mark.parametrize("orientation", [0, 90, 180, 270])
def test_skewed_lines(orientation: int, tmp_path: Path) -> None:
    """The letters keep the size of the line, however high its box is, and follow its baseline."""
    page = placed(orientation, SKEW, tmp_path / "1.png")
    lines, boxes, _ = read_back(searchable_pdf(page, "weights"))
    assert lines == list(TEXTS)
    true = np.array([word.box for line in page.lines for word in line.words])
    along, across = ([0, 2], [1, 3]) if orientation in (0, 180) else ([1, 3], [0, 2])
    found = np.array(boxes)
    assert np.abs(found - true)[:, along].max() <= 4
    assert np.abs(found[:, across].mean(1) - true[:, across].mean(1)).max() <= 8


def test_the_picture_is_that_of_the_page(tmp_path: Path) -> None:
    """A JPEG file is in it byte for byte, and nothing of the text is seen."""
    page = placed(0, 0.0, tmp_path / "1.jpg")
    content = searchable_pdf(page, "weights")
    assert (tmp_path / "1.jpg").read_bytes() in content
    sheet = pdfium.PdfDocument(content)[0]
    assert [round(side * 200 / 72) for side in sheet.get_size()] == list(SIZE)
    drawn = np.asarray(sheet.render(scale=200 / 72).to_pil().convert("L"))
    assert np.ptp(drawn) <= 1, "the paper alone"


def test_of_an_xml_page_by_the_command(weights: Path, folder: Path, tmp_path: Path) -> None:
    write_page(folder, tmp_path)
    arguments = [str(weights), str(tmp_path / "1.xml"), "--orientation", "upright", "--output", f"{tmp_path}/out/"]
    assert main([*arguments, "--format", "pdf"]) == 0
    assert main(arguments) == 0
    lines, _, _ = read_back((tmp_path / "out" / "1.pdf").read_bytes())
    assert lines == [line for line in (tmp_path / "out" / "1.txt").read_text().splitlines() if line]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "1.pdf").write_bytes(b"%PDF-1.7")
    with raises("format.pdf_again"):
        check_pages([Source(tmp_path / "1.pdf", 1)], "pdf", "out/", 1)
    with raises("format.screen"):
        check_pages([], "pdf", "-", 1)


def test_resolutions() -> None:
    assert [scan_dpi(stated) for stated in ((), (72, 72), (600, 600), (1e6, 1e6))] == [DPI, DPI, 600, DPI]
