"""A page as a searchable PDF: its picture, and its text, which is invisible, where it stands on it (extra `ocrmypdf`).

OCRmyPDF's own renderer places the text, so that it can be searched and copied as in the files of OCRmyPDF.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from statistics import median
from typing import Any

from PIL import Image, UnidentifiedImageError

from gcsa import __version__
from gcsa._utils.errors import visible
from gcsa.images.pixels import naming, to_8_bits
from gcsa.tasks.recognition.data.cutting import rotate_points
from gcsa.tasks.recognition.data.line_image import page_pixels
from gcsa.tasks.recognition.pages.placed import PlacedLine, PlacedPage
from gcsa.tasks.recognition.pages.words import ANYWHERE, Box, box_of, upright_points
from gcsa.tasks.recognition.reading import text_orientation

DPI = 300.0
"""Of a picture that does not state its resolution, or states one that no scanner has."""
SCANNED_DPI = (100, 2400)


def has_ocrmypdf() -> bool:
    return find_spec("ocrmypdf") is not None


def searchable_pdf(page: PlacedPage, weights: str) -> bytes:
    """A PDF file of one page, which says that gcsa read it with `weights`. It opens upright, whichever way the picture lies.

    A JPEG file is put into it as it is, any other picture without loss. Raises ValueError as `page_pixels`.
    """
    from fpdf import FPDF
    from fpdf.enums import TextMode
    from ocrmypdf.fpdf_renderer import Fpdf2PdfRenderer
    from pikepdf import Pdf

    pdf = FPDF(unit="pt")
    pdf.set_auto_page_break(False)
    pdf.set_text_shaping(True)
    pdf.c_margin = 0
    pdf.text_mode = TextMode.INVISIBLE
    pdf.set_creator(f"gcsa {__version__} with {visible(weights)}")
    picture, dpi = _picture(page)
    Fpdf2PdfRenderer(ocr_element(page, dpi), dpi, _fonts()).render_to_pdf(pdf)
    width, height = (72 * side / dpi for side in page.size)
    pdf.image(picture, 0, 0, width, height)
    content = BytesIO()
    with Pdf.open(BytesIO(bytes(pdf.output()))) as document:
        document.pages[0].rotate(text_orientation([line.reading for line in page.lines]), relative=False)
        document.save(content)
    return content.getvalue()


def ocr_element(page: PlacedPage, dpi: float, number: int = 0) -> Any:
    """A page as OCRmyPDF's renderer takes it; number: from 0 on."""
    from ocrmypdf.models.ocr_element import BoundingBox, OcrClass, OcrElement

    lines = [_line_element(line) for line in page.lines if line.words]
    box = BoundingBox(0, 0, *page.size)
    return OcrElement(OcrClass.PAGE, bbox=box, children=lines, dpi=dpi, page_number=number)


def _line_element(line: PlacedLine) -> Any:
    from ocrmypdf.models.ocr_element import Baseline, BoundingBox, OcrClass, OcrElement

    words = [
        OcrElement(OcrClass.WORD, bbox=BoundingBox(*word.box), text=word.text, confidence=word.confidence)
        for word in line.words
    ]
    box, baseline = line.box, None
    if line.baseline is not None:
        slope, height = line.baseline
        left, _, right, bottom = _upright(line.box, line)
        box = _scanned((left, _top(line, slope, height), right, bottom), line)
        baseline = Baseline(slope, slope * left + height - bottom)
    return OcrElement(
        OcrClass.LINE,
        bbox=BoundingBox(*box),
        baseline=baseline,
        textangle=float(line.reading.orientation),
        children=words,
    )


def _top(line: PlacedLine, slope: float, height: float) -> int:
    """Where the box of an upright line would start if it were not skewed: the renderer takes the letters' size from there to the
    baseline, at the left end of the line."""
    left, top, _, bottom = _upright(line.box, line)
    boxes = [_upright(word.box, line) for word in line.words]
    ascents = [slope * (start + end) / 2 + height - above for start, above, end, _ in boxes]
    return min(bottom - 1, max(top - (bottom - top), round(slope * left + height - median(ascents))))


def _upright(box: Box, line: PlacedLine) -> Box:
    return box_of(upright_points(_corners(box), line.reading.orientation))


def _scanned(box: Box, line: PlacedLine) -> Box:
    return box_of(rotate_points(_corners(box), line.reading.orientation, ANYWHERE))


def _corners(box: Box) -> tuple[tuple[float, float], ...]:
    return box[:2], box[2:]


@cache
def _fonts() -> Any:
    from ocrmypdf.font import MultiFontManager

    return MultiFontManager()


def _picture(page: PlacedPage) -> tuple[Any, float]:
    """What fpdf2 draws, the file of a JPEG image, whose bytes it keeps, or pixels, as they are stored; and the resolution."""
    with naming(page.image):
        try:
            with Image.open(page.image) as image:
                dpi = scan_dpi(image.info.get("dpi", ()))
                as_it_is = image.format == "JPEG" and image.mode in ("L", "RGB")
        except UnidentifiedImageError:  # a TIFF file that gcsa reads and Pillow does not
            dpi, as_it_is = DPI, False
        if as_it_is:
            return str(page.image), dpi
        pixels, _ = page_pixels(page.image, page.page)
        return to_8_bits(pixels, 1 if pixels.values.ndim == 2 else 3), dpi


def scan_dpi(stated: Sequence[float]) -> float:
    """The resolution that a picture states, or `DPI` where it is none of a scan."""
    least, most = SCANNED_DPI
    dpi = float(stated[0]) if len(stated) else 0.0
    return dpi if least <= dpi <= most else DPI
