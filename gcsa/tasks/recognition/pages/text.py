"""What was read, written into the PAGE-XML or ALTO file that says where the lines are: regions, reading order and names stay.

A program such as eScriptorium or Transkribus that exported the file takes it back with the text of every line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gcsa._utils.errors import UserError
from gcsa._utils.paths import read_bounded
from gcsa.tasks.recognition.pages.page_xml import MAX_BYTES, ROOTS, line_order
from gcsa.tasks.recognition.pages.provenance import children, new, sign, text_of
from gcsa.tasks.recognition.reading import Reading

BEHIND_TEXT = ("TextStyle", "UserDefined", "Labels")
"""What PAGE-XML wants behind the text of a line or a region."""
BOX = ("HPOS", "VPOS", "WIDTH", "HEIGHT")
TAGGED_CHARACTERS = re.compile(r"\s*[^\s{}]+ *\{[^}]*\boffset:[^}]*\}")
"""What Transkribus says of characters of a line, such as an abbreviation's, by their place in the text."""


def write_text(path: Path, readings: Sequence[Reading | None], weights: str) -> str:
    """The content of a file that `read_page` reads, with the text of its lines from `readings`, in the order of `read_page`.

    The file also says that gcsa read it with `weights`, unless no line has a reading.

    A text replaces all that the file says of the line's text: its words, characters and other readings too. A region
    that states a text gets that of its lines, if one of them has a reading. A line without a reading stays as it is.

    Raises ValueError where the file has other lines than `readings`.
    """
    from defusedxml.minidom import parseString

    document: Any = parseString(read_bounded(path, MAX_BYTES))
    write = _write_page_line if ROOTS[document.documentElement.localName] == "page" else _write_alto_line
    lines = document.getElementsByTagNameNS("*", "TextLine")
    if len(lines) != len(readings):
        raise UserError(
            f"{path} has {len(lines)} lines now, and had {len(readings)} when it was read: read it again",
            "page.changed",
        )
    lines = [lines[i] for i in line_order(path)]
    read = {line: reading for line, reading in zip(lines, readings, strict=True) if reading is not None}
    for line, reading in read.items():
        write(line, reading)
    for region in document.getElementsByTagNameNS("*", "TextRegion"):
        inner = region.getElementsByTagNameNS("*", "TextLine")
        if children(region, "TextEquiv") and not read.keys().isdisjoint(inner):
            _write_text_equiv(region, "\n".join(map(_text, inner)))
    if read or not lines:
        sign(document, weights)
    return str(document.toxml(encoding="UTF-8"), "utf-8")


def _drop(element: Any, *tags: str) -> None:
    for child in children(element, *tags):
        element.removeChild(child)


def _write_page_line(line: Any, reading: Reading) -> None:
    _drop(line, "Word")
    if line.hasAttribute("custom"):
        line.setAttribute("custom", TAGGED_CHARACTERS.sub("", line.getAttribute("custom")))
    _write_text_equiv(line, reading.text).setAttribute("conf", f"{reading.confidence:.4f}")


def _write_text_equiv(parent: Any, text: str) -> Any:
    """Makes `text` the only one of a line or region; returns the element that holds it."""
    _drop(parent, "TextEquiv")
    equiv = new(parent, "TextEquiv")
    equiv.appendChild(new(parent, "Unicode", text))
    parent.insertBefore(equiv, next(iter(children(parent, *BEHIND_TEXT)), None))
    return equiv


def _write_alto_line(line: Any, reading: Reading) -> None:
    """One String for the whole line, as eScriptorium writes it."""
    _drop(line, "String", "SP", "HYP")
    string = new(line, "String")
    for side in BOX:
        if line.hasAttribute(side):
            string.setAttribute(side, line.getAttribute(side))
    string.setAttribute("CONTENT", reading.text)
    string.setAttribute("WC", f"{reading.confidence:.4f}")
    line.appendChild(string)


def _text(element: Any) -> str:
    """The text of a line or a word; of a line that states none, that of its words."""
    equivs = children(element, "TextEquiv")
    if not equivs:
        return " ".join(map(_text, children(element, "Word")))
    return "".join(map(text_of, children(equivs[0], "Unicode")))
