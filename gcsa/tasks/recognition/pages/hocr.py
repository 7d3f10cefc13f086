"""Pages as hOCR 1.2 (Breuel 2007, kba.github.io/hocr-spec/1.2), as Tesseract writes it: XHTML with the places of lines and words.

A rotated line has its box on the page as it was scanned and `textangle`, and no `baseline`, which hOCR defines for upright lines.
"""

from __future__ import annotations

import os
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gcsa import __version__
from gcsa._utils.errors import visible
from gcsa.tasks.recognition.pages.placed import PlacedLine, PlacedPage
from gcsa.tasks.recognition.pages.words import Box, box_of

DOCTYPE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" '
    '"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">\n'
)
CAPABILITIES = "ocr_page ocr_carea ocr_par ocr_line ocrx_word"


def hocr(page: PlacedPage, weights: str) -> str:
    """A page as hOCR, which says that gcsa read it with `weights`. Lines of one region that follow each other are a paragraph."""
    root = Element("html", {"xmlns": "http://www.w3.org/1999/xhtml"})
    head = SubElement(root, "head")
    SubElement(head, "title")
    SubElement(head, "meta", {"http-equiv": "Content-Type", "content": "text/html; charset=utf-8"})
    for name, content in (
        ("ocr-system", f"gcsa {__version__} with {visible(weights)}"),
        ("ocr-capabilities", CAPABILITIES),
        ("ocr-number-of-pages", "1"),
    ):
        SubElement(head, "meta", {"name": name, "content": content})
    # A name need not be UTF-8, and a quotation mark would end it.
    image = visible(os.fsencode(page.image.name).decode(errors="backslashreplace")).replace('"', "%22")
    number = 0 if page.page is None else page.page - 1
    title = f'image "{image}"; {_bbox((0, 0, *page.size))}; ppageno {number}'
    sheet = SubElement(SubElement(root, "body"), "div", {"class": "ocr_page", "id": "page_1", "title": title})
    words = lines = 0
    for area, (_, group) in enumerate(groupby(page.lines, key=lambda line: line.region), 1):
        members = list(group)
        corners = [corner for line in members for corner in (line.box[:2], line.box[2:])]
        title = _bbox(box_of(corners))
        block = SubElement(sheet, "div", {"class": "ocr_carea", "id": f"block_1_{area}", "title": title})
        paragraph = SubElement(block, "p", {"class": "ocr_par", "id": f"par_1_{area}", "title": title})
        for line in members:
            lines += 1
            span = SubElement(
                paragraph, "span", {"class": "ocr_line", "id": f"line_1_{lines}", "title": _line_title(line)}
            )
            for word in line.words:
                words += 1
                title = f"{_bbox(word.box)}; x_wconf {round(100 * word.confidence)}"
                attributes = {"class": "ocrx_word", "id": f"word_1_{words}", "title": title}
                SubElement(span, "span", attributes).text = word.text
    indent(root)
    return f"{DOCTYPE}{tostring(root, encoding='unicode', short_empty_elements=False)}\n"


def _bbox(box: Box) -> str:
    return "bbox {} {} {} {}".format(*box)


def _line_title(line: PlacedLine) -> str:
    title, angle = _bbox(line.box), line.reading.orientation
    if angle:
        return f"{title}; textangle {angle}"
    if line.baseline is None:
        return title
    slope, height = line.baseline
    left, _, _, bottom = line.box
    return f"{title}; baseline {slope:.4f} {slope * left + height - bottom:.1f}"
