"""Who read a page, in its PAGE-XML or ALTO file, valid in every version of both.

PAGE: a line of `Comments` in the Metadata, and the time of the last change. ALTO 4: a `Processing` step; ALTO 2 and 3: an
`OCRProcessing`. What another program says there stays; of an earlier reading by gcsa, whose text is replaced, nothing does.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from gcsa import __version__
from gcsa._utils.errors import visible

ID = "gcsa_text"
SIGNATURE = "text read by gcsa "


def sign(document: Any, weights: str) -> None:
    """Says in `document`, of xml.dom.minidom, that gcsa read its text with `weights`."""
    root, now = document.documentElement, datetime.now(timezone.utc).isoformat(timespec="seconds")
    if root.localName == "PcGts":
        _sign_page(root, visible(weights), now)
    else:
        _sign_alto(root, visible(weights), now)


def children(element: Any, *tags: str) -> list[Any]:
    """Those of `element` with one of the names `tags`, whatever their namespace."""
    return [child for child in element.childNodes if child.localName in tags]


def new(parent: Any, tag: str, text: str = "") -> Any:
    """An element for `parent`, in its namespace and written with its prefix."""
    name = f"{parent.prefix}:{tag}" if parent.prefix else tag
    element = parent.ownerDocument.createElementNS(parent.namespaceURI, name)
    if text:
        element.appendChild(parent.ownerDocument.createTextNode(text))
    return element


def text_of(element: Any) -> str:
    return "".join(
        node.data for node in element.childNodes if node.nodeType in (node.TEXT_NODE, node.CDATA_SECTION_NODE)
    )


def _sign_page(root: Any, weights: str, now: str) -> None:
    software = f"gcsa {__version__}"
    metadata = _first(root, "Metadata")
    if not children(metadata, "Creator"):
        for tag, text in (("Creator", software), ("Created", now), ("LastChange", now)):
            metadata.appendChild(new(metadata, tag, text))
    for change in children(metadata, "LastChange"):
        metadata.replaceChild(new(metadata, "LastChange", now), change)
    older = children(metadata, "Comments")
    kept = [line for comment in older for line in text_of(comment).splitlines() if not line.startswith(SIGNATURE)]
    comments = new(metadata, "Comments", "\n".join([*kept, f"{SIGNATURE}{__version__} with {weights}"]))
    for comment in older:
        metadata.removeChild(comment)
    metadata.insertBefore(comments, next(iter(children(metadata, "UserDefined", "MetadataItem")), None))


def _sign_alto(root: Any, weights: str, now: str) -> None:
    description = _first(root, "Description")
    if not children(description, "MeasurementUnit"):
        description.insertBefore(new(description, "MeasurementUnit", "pixel"), description.firstChild)
    for older in children(description, "Processing", "OCRProcessing"):
        if older.getAttribute("ID") == ID:
            description.removeChild(older)
    is_new = str(root.namespaceURI).endswith("ns-v4#")
    entry = description.appendChild(new(description, "Processing" if is_new else "OCRProcessing"))
    entry.setAttribute("ID", ID)
    step = entry if is_new else entry.appendChild(new(entry, "ocrProcessingStep"))
    if is_new:
        step.appendChild(new(step, "processingCategory", "contentGeneration"))
    step.appendChild(new(step, "processingDateTime", now))
    step.appendChild(new(step, "processingStepDescription", "text recognition"))
    step.appendChild(new(step, "processingStepSettings", f"weights: {weights}"))
    software = step.appendChild(new(step, "processingSoftware"))
    software.appendChild(new(software, "softwareName", "gcsa"))
    software.appendChild(new(software, "softwareVersion", __version__))


def _first(root: Any, tag: str) -> Any:
    """The child called `tag`, made at the top where there is none."""
    return next(iter(children(root, tag)), None) or root.insertBefore(new(root, tag), root.firstChild)
