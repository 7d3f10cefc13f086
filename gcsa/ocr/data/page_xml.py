"""Lines of a page from PAGE-XML (any version) and ALTO (2 to 4), as kraken, eScriptorium and Transkribus write them.

Both name an image and, for every line, a polygon or box and the text in logical order. Coordinates are in units of
the page size that the file states, whatever the size of the image or ALTO's MeasurementUnit: Transkribus states mm10
and writes pixels.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path, PureWindowsPath
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from PIL import Image

from gcsa.ocr.data.charset import normalize
from gcsa.ocr.data.line_image import SUFFIXES, Line

NOT_PAGES = ("mets", "metadata")
"""What eScriptorium and Transkribus put beside the pages of an export."""

Points = tuple[tuple[float, float], ...]


def list_pages(folder: Path) -> list[Path]:
    """The .xml files in `folder`, without the table of contents of an export."""
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() == ".xml" and path.stem.lower() not in NOT_PAGES
    )


def read_page(path: str | Path) -> list[Line]:
    """The lines of a PAGE-XML or ALTO file in the order of the file; `text` is empty where there is none.

    The image is looked for beside the XML file and in the folder above it.

    Raises:
        ValueError: not XML, unsafe XML, another schema, no lines, an impossible polygon, no image, naming the file.
    """
    path = Path(path)
    root = _parse(path)
    kind = _tag(root)
    if kind not in ("PcGts", "alto"):
        raise ValueError(f"{path} is neither PAGE-XML nor ALTO: its root is <{kind}>, not <PcGts> or <alto>")
    page_of, line_of = (_page, _page_line) if kind == "PcGts" else (_alto, _alto_line)
    try:
        name, stated = page_of(root)
        found = [line_of(line) for line in _all(root, "TextLine")]
    except (KeyError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be read as a page ({reason}): correct it") from error
    if not found:
        raise ValueError(f"{path} holds no TextLine: segment and transcribe the page, or remove the file")
    image = _find_image(path, name)
    try:
        with Image.open(image) as opened:
            width, height = opened.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{image}, the image of {path}, cannot be read ({error})") from error
    x_scale, y_scale = (width / stated[0], height / stated[1]) if all(stated) else (1.0, 1.0)
    return [
        Line(image, normalize(text), document=path.stem, polygon=tuple((x * x_scale, y * y_scale) for x, y in points))
        for points, text in found
    ]


def _parse(path: Path) -> Element:
    try:
        from defusedxml.ElementTree import parse
    except ImportError as error:
        raise ImportError("reading PAGE-XML and ALTO needs defusedxml: pip install 'gcsa[ocr]'") from error
    try:
        return parse(path).getroot()
    except (ParseError, ValueError, LookupError) as error:  # defusedxml's own are ValueErrors
        raise ValueError(f"{path} is not XML that can be read safely ({error!r}): export it again") from error


def _tag(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _all(element: Element, tag: str) -> Iterator[Element]:
    return (inner for inner in element.iter() if _tag(inner) == tag)


def _inner(element: Element, *tags: str) -> Element | None:
    """The first element at the path of `tags` below `element`, whatever its namespace."""
    found: Element | None = element
    for tag in tags:
        found = next((inner for inner in found if _tag(inner) == tag), None) if found is not None else None
    return found


def _polygon(numbers: Iterable[str | float], line: Element) -> Points:
    values = [float(number) for number in numbers]
    if len(values) < 6 or len(values) % 2 or not all(map(math.isfinite, values)):
        raise ValueError(f"the polygon of line {line.get('id') or line.get('ID')} is not 3 or more points x,y")
    return tuple(zip(values[::2], values[1::2], strict=True))


def _size(page: Element, width: str, height: str) -> tuple[float, float]:
    return float(page.get(width) or 0), float(page.get(height) or 0)


def _page(root: Element) -> tuple[str, tuple[float, float]]:
    page = next(_all(root, "Page"), None)
    if page is None:
        raise KeyError("Page")
    return page.attrib["imageFilename"], _size(page, "imageWidth", "imageHeight")


def _page_line(line: Element) -> tuple[Points, str]:
    coords = _inner(line, "Coords")
    if coords is None:
        raise KeyError("Coords")
    numbers = coords.get("points", "").replace(",", " ").split()
    for point in coords:  # as PAGE wrote them before 2013
        numbers += [point.attrib["x"], point.attrib["y"]]
    readings = sorted((e for e in line if _tag(e) == "TextEquiv"), key=lambda e: int(e.get("index") or 0))
    text: Any = _inner(readings[0], "Unicode") if readings else None
    return _polygon(numbers, line), "" if text is None else text.text or ""


def _alto(root: Element) -> tuple[str, tuple[float, float]]:
    name = _inner(root, "Description", "sourceImageInformation", "fileName")
    page = _inner(root, "Layout", "Page")
    if page is None:
        raise KeyError("Page")
    return (name.text or "" if name is not None else ""), _size(page, "WIDTH", "HEIGHT")


def _alto_line(line: Element) -> tuple[Points, str]:
    shape = _inner(line, "Shape", "Polygon")
    if shape is not None:
        numbers: list[Any] = shape.attrib["POINTS"].replace(",", " ").split()
    else:
        x, y, w, h = (float(line.attrib[key]) for key in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
        numbers = [x, y, x + w, y, x + w, y + h, x, y + h]
    # Where nothing separates the words of a line, every String is one.
    between = "" if _inner(line, "SP") is not None else " "
    text = ""
    for element in line:
        if _tag(element) == "String":
            text += between + element.attrib["CONTENT"]
        elif _tag(element) in ("SP", "HYP"):
            text += " " if _tag(element) == "SP" else element.get("CONTENT", "")
    return _polygon(numbers, line), text


def _find_image(path: Path, name: str) -> Path:
    """The image that `path` names, or, where it names none, the one with its stem."""
    plain = PureWindowsPath(name.strip()).name  # also of a POSIX path
    names = [name.strip(), plain] if plain else [path.stem + suffix for suffix in SUFFIXES]
    for folder in (path.parent, path.parent.parent):
        for candidate in names:
            if (folder / candidate).is_file():
                return folder / candidate
    raise ValueError(f"{path} needs the image {plain or path.stem + '.*'}: put it beside the file")
