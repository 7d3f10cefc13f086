"""Lines of a page from PAGE-XML (any version) and ALTO (2 to 4), as kraken, eScriptorium and Transkribus write them.

Both name an image and, for every line, a polygon or box and the text in logical order. Coordinates are in units of the page
size that the file states, whatever the size of the image or ALTO's MeasurementUnit: Transkribus states mm10 and writes pixels.
Without a page size they are pixels.

A file may come from a stranger: it opens no image outside of its folder, and its size is bounded in every respect.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path, PureWindowsPath
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError

from gcsa._utils.errors import MissingExtraError, UserError
from gcsa._utils.paths import confined, read_bounded
from gcsa.images.folders import SUFFIXES, list_files
from gcsa.images.reader import image_size, open_image
from gcsa.tasks.recognition.data.charset import normalize
from gcsa.tasks.recognition.data.cutting import Points
from gcsa.tasks.recognition.data.line_image import Line

NOT_PAGES = ("mets", "metadata")
"""What eScriptorium and Transkribus put beside the pages of an export."""
ROOTS = {"PcGts": "page", "alto": "alto"}
"""The formats, by the name of a file's root."""
MAX_BYTES = 1 << 26
MAX_ELEMENTS = 2_000_000
"""Of a file: a page that states a box for every glyph has 50,000."""
MAX_DEPTH = 100
MAX_LINES = 5_000
MAX_POINTS = 5_000
"""Of the polygon of a line."""
MAX_COORDINATE = 10_000_000
"""Of a coordinate, a width and a height: a metre in the finest unit of ALTO, 1/1200 inch, is 47,000."""
MAX_TEXT = 10_000
"""Characters of a line."""
SOFT_HYPHEN = "\u00ad"
"""ABBYY writes it for the hyphen that is printed at the end of a line."""
HYPHENS = ("-", "\u2010", "\u2e17", "\u00ac")
"""A word that ends in one of them holds its hyphen already, and HYP repeats it."""
SAME_ASPECT = 0.02
"""By this share two ratios of width and height may differ, and be of one page."""


def list_pages(folder: Path, *, recursive: bool = False) -> list[Path]:
    """The .xml files in `folder`, with `recursive` those below it too, without hidden ones and the table of contents of an export."""
    files = list_files(folder, (".xml",), recursive=recursive)
    return [path for path in files if path.stem.lower() not in NOT_PAGES]


def read_page(path: str | Path, any_image: bool = False) -> list[Line]:
    """The lines of a PAGE-XML or ALTO file in `reading_order`, none where the page is blank; `text` is empty where there is none.

    A line whose polygon cannot be used has neither text nor polygon, and an `error` that says why.

    The image that the file names is looked for by that name in the folder of the XML file and its subfolders, then by
    its last part beside the XML file and in the folder above it. With `any_image` it is read wherever the file says.

    Raises:
        ValueError: naming the file: not XML, unsafe XML, another schema, an impossible page size or unit, more of
            anything than a page has, no image, or one that lies elsewhere or is not stored upright.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    root = _parse(path)
    formats = {
        "page": (_page, _page_text, _page_points, _page_baseline),
        "alto": (_alto, _alto_text, _alto_points, _alto_baseline),
    }
    page_of, text_of, points_of, baseline_of = formats[_format(path, root)]
    try:
        name, stated = page_of(root)
        elements = reading_order(root)
        if len(elements) > MAX_LINES:
            raise UserError(f"{len(elements)} lines, above {MAX_LINES}", "page.lines")
        texts = [normalize(_bounded(text_of(element))) for element in elements]
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a page ({_reason(error)}): correct it", "page.unreadable") from error
    if not elements:  # a blank page, of which no image is needed
        return []
    image = _find_image(path, name, any_image)
    try:
        with open_image(image) as source:
            width, height = image_size(source)
            orientation = source.orientation
    except ValueError as error:
        raise UserError(f"the image of {path}, {error}", "page.image") from error
    page_width, page_height = stated if all(stated) else (width, height)
    size = f"{page_width:g} x {page_height:g}"
    upright = "save the image upright, without an EXIF orientation"
    stated_ratio, stored_ratio = page_width / page_height, width / height
    if _is_rotated(stated_ratio, stored_ratio):
        raise UserError(
            f"{path} states a page of {size}, and its image {image} is stored rotated, {width} x {height}: {upright}",
            "page.rotated",
        )
    if orientation != 1 and (orientation < 5 or not _is_rotated(1 / stated_ratio, stored_ratio)):
        raise UserError(
            f"the image {image} of {path} has the EXIF orientation {orientation}, and the file does not tell whether its "
            f"lines are on the image as it is stored or as it is shown: {upright}",
            "page.exif",
        )
    x_scale, y_scale = width / page_width, height / page_height
    lines = []
    for element, text in zip(elements, texts, strict=True):
        try:
            points = _polygon(points_of(element))
        except (KeyError, ValueError) as error:  # the other lines are read
            name = str(element.get("id") or element.get("ID"))[:80]
            reason = f"line {name} of {path} cannot be cut out ({_reason(error)}): correct it"
            lines.append(Line(image, document=path.stem, error=reason))
            continue
        polygon = _scaled(points, x_scale, y_scale)
        if max(max(abs(x), abs(y)) for x, y in polygon) > MAX_COORDINATE:
            raise UserError(f"{path} states a page of {size}, far too small for its lines", "page.too_small", size=size)
        baseline = _scaled(_usable(baseline_of, element), x_scale, y_scale) or None
        lines.append(Line(image, text, document=path.stem, polygon=polygon, baseline=baseline))
    return lines


def read_regions(path: Path, any_image: bool = False) -> tuple[Path, list[str]]:
    """The image of a PAGE-XML or ALTO file that `read_page` reads, and the region that each of its lines is in, "" where that has no
    name.

    Raises as `read_page`, also for the image of a blank page.
    """
    root = _parse(path)
    page_of = {"page": _page, "alto": _alto}[_format(path, root)]
    try:
        name, _ = page_of(root)
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a page ({_reason(error)}): correct it", "page.unreadable") from error
    regions = {
        line: str(region.get("id") or region.get("ID") or "")
        for region in root.iter()  # an inner region comes behind the outer one
        if _tag(region) in ("TextRegion", "TextBlock")
        for line in _all(region, "TextLine")
    }
    return _find_image(path, name, any_image), [regions.get(line, "") for line in reading_order(root)]


def _reason(error: KeyError | ValueError) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)[:200]


def _is_rotated(stated: float, stored: float) -> bool:
    """Whether of two ratios of width and height one is that of the page rotated by 90 degrees, and not nearly square."""
    return abs(stated * stored - 1) < SAME_ASPECT < abs(stated / stored - 1)


def line_order(path: Path) -> list[int]:
    """The places in the file of the lines that `read_page` gives."""
    root = _parse(path)
    place = {line: i for i, line in enumerate(_all(root, "TextLine"))}
    return [place[line] for line in reading_order(root)]


def reading_order(root: Element) -> list[Element]:
    """The lines of a page: those of the regions in PAGE's ReadingOrder, one after the other, then all others.

    Within a region, and without a ReadingOrder, the order is that of the file.
    """
    lines = list(_all(root, "TextLine"))
    order = next(_all(root, "ReadingOrder"), None)
    if order is None:
        return lines
    places = {name: place for place, name in reversed(list(enumerate(_region_refs(order))))}
    if not places:
        return lines
    place_of: dict[Element, int] = {}  # an inner region without a place of its own has that of the outer one
    for region in root.iter():
        if (place := places.get(region.get("id", ""))) is not None:
            place_of |= dict.fromkeys(_all(region, "TextLine"), place)
    return sorted(lines, key=lambda line: place_of.get(line, len(places)))


def _region_refs(group: Element) -> Iterator[str]:
    """The regions in a group, by `index` where that is stated."""
    for member in sorted(group, key=lambda member: int(member.get("index") or 0)):
        if name := member.get("regionRef"):
            yield name
        yield from _region_refs(member)


def _parse(path: Path) -> Element:
    try:
        from defusedxml.ElementTree import iterparse
    except ImportError as error:
        raise MissingExtraError(
            "reading PAGE-XML and ALTO needs defusedxml: pip install 'gcsa-vit[ocr]'", "defusedxml.missing"
        ) from error
    data = read_bounded(path, MAX_BYTES)
    try:
        events = iterparse(BytesIO(data), events=("start", "end"))
        count = depth = 0
        for event, _ in events:
            depth += 1 if event == "start" else -1
            count += event == "start"
            if count > MAX_ELEMENTS or depth > MAX_DEPTH:
                raise UserError(f"more than {MAX_ELEMENTS} elements, or {MAX_DEPTH} within each other", "page.elements")
        root: Element = events.root
    except (ParseError, ValueError, LookupError) as error:  # defusedxml's own are ValueErrors
        raise UserError(
            f"{path} is not XML that can be read safely ({error!r:.200}): export it again", "page.xml"
        ) from error
    return root


def format_of(path: Path) -> str:
    """What an XML file is: "page" for PAGE-XML, "alto" for ALTO. Raises as `read_page` for any other."""
    return _format(path, _parse(path))


def _format(path: Path, root: Element) -> str:
    kind = _tag(root)
    if kind not in ROOTS:
        raise UserError(
            f"{path} is neither PAGE-XML nor ALTO: its root is <{kind[:80]}>, not <PcGts> or <alto>", "page.format"
        )
    return ROOTS[kind]


def _tag(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _all(element: Element, tag: str) -> Iterator[Element]:
    return (inner for inner in element.iter() if _tag(inner) == tag)


def _inner(element: Element, *tags: str) -> Element | None:
    """The first element at the path of `tags` below `element`, whatever its namespace."""
    place: Element | None = element
    for tag in tags:
        place = next((inner for inner in place if _tag(inner) == tag), None) if place is not None else None
    return place


def _polygon(numbers: Iterable[str | float]) -> Points:
    values = [float(number) for number in numbers]
    if len(values) < 6 or len(values) % 2 or not all(map(math.isfinite, values)):
        raise UserError("its polygon is not 3 or more points x,y", "page.polygon")
    if len(values) > 2 * MAX_POINTS or max(map(abs, values)) > MAX_COORDINATE:
        raise UserError(f"its polygon has over {MAX_POINTS} points or one beyond {MAX_COORDINATE}", "page.polygon_size")
    return tuple(zip(values[::2], values[1::2], strict=True))


def _usable(baseline_of: Callable[[Element], list[str]], line: Element) -> Points:
    """The base line of a line; no points where it cannot be used, as the polygon tells where the line is."""
    try:
        values = [float(number) for number in baseline_of(line)]
    except (KeyError, ValueError):
        return ()
    usable = 4 <= len(values) <= 2 * MAX_POINTS and len(values) % 2 == 0
    if not usable or not all(abs(value) <= MAX_COORDINATE for value in values):  # nor NaN
        return ()
    return tuple(zip(values[::2], values[1::2], strict=True))


def _scaled(points: Points, x_scale: float, y_scale: float) -> Points:
    return tuple((x * x_scale, y * y_scale) for x, y in points)


def _bounded(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise UserError(f"a line of {len(text)} characters, above {MAX_TEXT}", "page.text")
    return text


def _size(page: Element, *names: str) -> tuple[float, float]:
    """Width and height as stated in the attributes `names`, 0 where they are not."""
    sizes = []
    for name in names:
        value = page.get(name, "").strip() or "0"
        try:
            sizes.append(float(value))
        except ValueError:
            sizes.append(math.nan)
        if sizes[-1] != 0 and not 1 <= sizes[-1] <= MAX_COORDINATE:
            raise UserError(f"{name}={value!r:.40} is not a size of a page", "page.size", value=value)
    return sizes[0], sizes[1]


def _page(root: Element) -> tuple[str, tuple[float, float]]:
    page = next(_all(root, "Page"), None)
    if page is None:
        raise KeyError("Page")
    return page.attrib["imageFilename"], _size(page, "imageWidth", "imageHeight")


def _page_points(line: Element) -> list[str]:
    coords = _inner(line, "Coords")
    if coords is None:
        raise KeyError("Coords")
    return _numbers(coords)


def _page_baseline(line: Element) -> list[str]:
    baseline = _inner(line, "Baseline")
    return [] if baseline is None else _numbers(baseline)


def _numbers(coords: Element) -> list[str]:
    numbers = coords.get("points", "").replace(",", " ").split()
    for point in coords:  # as PAGE wrote them before 2013
        numbers += [point.attrib["x"], point.attrib["y"]]
    return numbers


def _page_text(element: Element) -> str:
    """The first reading of a line or a word; of a line that has none, those of its words."""
    readings = sorted((e for e in element if _tag(e) == "TextEquiv"), key=lambda e: int(e.get("index") or 0))
    if not readings:
        return " ".join(_page_text(word) for word in element if _tag(word) == "Word")
    text = _inner(readings[0], "Unicode")
    return "" if text is None else text.text or ""


def _alto(root: Element) -> tuple[str, tuple[float, float]]:
    name = _inner(root, "Description", "sourceImageInformation", "fileName")
    pages = list(_all(root, "Page"))
    if not pages:
        raise KeyError("Page")
    if len(pages) > 1:
        raise UserError(f"{len(pages)} pages, of one image: write a file for each", "page.several")
    size, unit = _size(pages[0], "WIDTH", "HEIGHT"), _inner(root, "Description", "MeasurementUnit")
    if not all(size) and unit is not None and (unit.text or "pixel").strip() != "pixel":
        raise UserError(
            f"its coordinates are in {unit.text!r:.40}, and it states no WIDTH and HEIGHT of the page", "page.unit"
        )
    return (name.text or "" if name is not None else ""), size


def _alto_points(line: Element) -> Sequence[str | float]:
    shape = _inner(line, "Shape", "Polygon")
    if shape is not None:
        return shape.attrib["POINTS"].replace(",", " ").split()
    x, y, w, h = (float(line.attrib[key]) for key in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
    return [x, y, x + w, y, x + w, y + h, x, y + h]


def _alto_baseline(line: Element) -> list[str]:
    """Before ALTO 4.1 it is the height of a straight one, which tells nothing of its slope."""
    return line.get("BASELINE", "").replace(",", " ").split()


def _alto_text(line: Element) -> str:
    # Where nothing separates the words of a line, every String is one.
    between = "" if _inner(line, "SP") is not None else " "
    text = ""
    for element in line:
        kind, content = _tag(element), element.get("CONTENT", "")
        if kind == "String":
            text += between + element.attrib["CONTENT"]
        elif kind == "SP":
            text += " "
        elif kind == "HYP" and not text.endswith(HYPHENS):
            text += content.replace(SOFT_HYPHEN, "-")
    return text


def _find_image(path: Path, name: str, any_image: bool) -> Path:
    """The image that `path` names, or, where it names none, the one with its stem."""
    name = name.strip()
    plain = PureWindowsPath(name).name  # also of a POSIX path
    # Some programs write a name as part of an address, with "%20" for a space.
    names = list(dict.fromkeys([plain, unquote(plain)])) if plain else [path.stem + suffix for suffix in SUFFIXES]
    beside, above = path.parent, path.parent.resolve().parent
    if any_image and name:
        for folder in (beside, above):
            try:
                if (folder / name).is_file():
                    return folder / name
            except OSError:  # a name that is too long
                continue
    for folder, candidate in [(beside, name), *((folder, last) for folder in (beside, above) for last in names)]:
        if image := confined(folder, candidate):
            return image
    wanted = plain or f"{path.stem}.*"
    why = (
        f", as {name!r:.200} may lie elsewhere, where only any_image=true and --any-image look" if plain != name else ""
    )
    raise UserError(f"{path} needs the image {wanted:.100}: put it beside the file{why}", "page.no_image")
