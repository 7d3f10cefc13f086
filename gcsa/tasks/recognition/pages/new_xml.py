"""The image of a page as PAGE-XML (2019-07-15) or ALTO (4.3): blocks in reading order, lines, words and characters.

Where a line is rotated on the image, its block says by how much, as both formats have an angle for blocks only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gcsa._utils.errors import UserError
from gcsa.tasks.recognition.data.cutting import Points
from gcsa.tasks.recognition.data.line_image import page_size
from gcsa.tasks.recognition.pages.inputs import Source, Transcript
from gcsa.tasks.recognition.pages.provenance import sign
from gcsa.tasks.recognition.pages.words import box_of, clipped, words_of
from gcsa.tasks.recognition.reading import Reading, text_orientation

PAGE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
ALTO = "http://www.loc.gov/standards/alto/ns-v4#"
UNREAD = Reading("", 0.0)


def new_xml(source: Source, transcripts: Sequence[Transcript], kind: str, weights: str) -> str:
    """A page with the lines that were found and read on it, of `arranged`, as "page" or "alto", which says that gcsa read it with
    `weights`. Raises UserError for an image whose name XML cannot hold."""
    from defusedxml.minidom import parseString

    if os.fsencode(source.file.name).decode(errors="replace") != source.file.name:
        raise UserError("the name of the image is not UTF-8, as XML must be: rename it", "image.name")
    size = page_size(source.file, source.page)
    blocks = [list(block) for _, block in groupby(transcripts, key=lambda transcript: transcript.input.block)]
    root = (_page if kind == "page" else _alto)(source, size, blocks)
    indent(root)
    document: Any = parseString(tostring(root, encoding="utf-8"))
    sign(document, weights)
    return str(document.toxml(encoding="UTF-8"), "utf-8")


class _Line:
    """What both formats say of a line on a page of `size`."""

    def __init__(self, transcript: Transcript, size: tuple[int, int]) -> None:
        line = transcript.input.line
        assert line is not None
        self.reading = UNREAD if transcript.reading is None else transcript.reading
        self.polygon = clipped(line.polygon or (), size)
        self.baseline = clipped(line.baseline or (), size)
        self.words = words_of(self.polygon, self.reading, line.baseline, with_glyphs=True)
        self.size = size


def _angle(lines: Sequence[_Line]) -> int:
    return text_orientation([line.reading for line in lines if line.reading.text])


def _page(source: Source, size: tuple[int, int], blocks: Sequence[Sequence[Transcript]]) -> Element:
    root = Element("PcGts", {"xmlns": PAGE})
    SubElement(root, "Metadata")
    names = {"imageFilename": source.file.name, "imageWidth": str(size[0]), "imageHeight": str(size[1])}
    page = SubElement(root, "Page", names)
    if blocks:
        order = SubElement(SubElement(page, "ReadingOrder"), "OrderedGroup", {"id": "order"})
        for number in range(len(blocks)):
            SubElement(order, "RegionRefIndexed", {"index": str(number), "regionRef": f"block_{number + 1}"})
    for number, block in enumerate(blocks, 1):
        lines = [_Line(transcript, size) for transcript in block]
        name = f"block_{number}"
        region = SubElement(page, "TextRegion", {"id": name})
        if angle := _angle(lines):
            region.set("orientation", f"{angle if angle <= 180 else angle - 360}")
        corners = box_of([point for line in lines for point in line.polygon])
        _coords(region, _corners(corners), size)
        for place, line in enumerate(lines, 1):
            _page_line(SubElement(region, "TextLine", {"id": f"{name}_line_{place}"}), line)
    return root


def _page_line(element: Element, line: _Line) -> None:
    name = element.get("id")
    _coords(element, line.polygon, line.size)
    SubElement(element, "Baseline", {"points": _points(line.baseline)})
    for number, word in enumerate(line.words, 1):
        inner = SubElement(element, "Word", {"id": f"{name}_word_{number}"})
        _coords(inner, word.outline, line.size)
        for place, glyph in enumerate(word.glyphs, 1):
            letter = SubElement(inner, "Glyph", {"id": f"{name}_word_{number}_glyph_{place}"})
            _coords(letter, glyph.outline, line.size)
            _text(letter, glyph.text, glyph.confidence)
        _text(inner, word.text, word.confidence)
    _text(element, line.reading.text, line.reading.confidence)


def _coords(element: Element, points: Points, size: tuple[int, int]) -> None:
    SubElement(element, "Coords", {"points": _points(clipped(points, size))})


def _text(element: Element, text: str, confidence: float) -> None:
    equiv = SubElement(element, "TextEquiv", {"conf": f"{confidence:.4f}"})
    SubElement(equiv, "Unicode").text = text


def _alto(source: Source, size: tuple[int, int], blocks: Sequence[Sequence[Transcript]]) -> Element:
    root = Element("alto", {"xmlns": ALTO})
    description = SubElement(root, "Description")
    SubElement(description, "MeasurementUnit").text = "pixel"
    SubElement(SubElement(description, "sourceImageInformation"), "fileName").text = source.file.name
    sides = {"WIDTH": str(size[0]), "HEIGHT": str(size[1])}
    number = 1 if source.page is None else source.page
    page = SubElement(SubElement(root, "Layout"), "Page", {"ID": "page", "PHYSICAL_IMG_NR": str(number), **sides})
    space = SubElement(page, "PrintSpace", {"HPOS": "0", "VPOS": "0", **sides})
    for number, block in enumerate(blocks, 1):
        lines = [_Line(transcript, size) for transcript in block]
        name = f"block_{number}"
        corners = _corners(box_of([point for line in lines for point in line.polygon]))
        region = SubElement(space, "TextBlock", {"ID": name, **_box(corners, size)})
        if angle := _angle(lines):
            region.set("ROTATION", str(angle))
        for place, line in enumerate(lines, 1):
            _alto_line(SubElement(region, "TextLine", {"ID": f"{name}_line_{place}"}), line)
    return root


def _alto_line(element: Element, line: _Line) -> None:
    name, size = element.get("ID"), line.size
    element.attrib |= {**_box(line.polygon, size), "BASELINE": _points(line.baseline)}
    SubElement(SubElement(element, "Shape"), "Polygon", {"POINTS": _points(line.polygon)})
    if not line.words:
        SubElement(element, "String", {"CONTENT": "", **_box(line.polygon, size)})
    for number, word in enumerate(line.words, 1):
        if number > 1:
            SubElement(element, "SP")
        about = {"ID": f"{name}_word_{number}", "CONTENT": word.text, "WC": f"{word.confidence:.4f}"}
        string = SubElement(element, "String", {**about, **_box(word.outline, size)})
        for place, glyph in enumerate(word.glyphs, 1):
            letter = {"ID": f"{name}_word_{number}_glyph_{place}", "CONTENT": glyph.text}
            SubElement(string, "Glyph", {**letter, "GC": f"{glyph.confidence:.4f}", **_box(glyph.outline, size)})


def _box(points: Points, size: tuple[int, int]) -> dict[str, str]:
    left, top, right, bottom = box_of(clipped(points, size))
    return {"HPOS": str(left), "VPOS": str(top), "WIDTH": str(right - left), "HEIGHT": str(bottom - top)}


def _corners(box: tuple[int, int, int, int]) -> Points:
    left, top, right, bottom = box
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _points(points: Points) -> str:
    return " ".join(f"{round(x)},{round(y)}" for x, y in points)
