"""How well the reading order of pages is told from the places of their lines: `python -m benchmarks.text.order FOLDER ...`.

Each FOLDER holds PAGE-XML or ALTO files, of which no image is needed. Lines that follow each other in the file are a pair; it is right
where they follow each other in our order too. Beside it, the order from top to bottom by the middles of lines. A page counts as one of
columns or notes where another line stands beside at least `BESIDE` of its lines.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, parse

from gcsa._utils.atomic import write_json
from gcsa.tasks.recognition.data.cutting import FoundLine
from gcsa.tasks.recognition.pages.page_xml import list_pages, reading_order as order_in_file
from gcsa.tasks.recognition.pages.reading_order import reading_order
from gcsa.tasks.recognition.pages.words import box_of
from gcsa.training.results import git_commit

RESULT = Path(__file__).parents[2] / "benchmarks/results/pages/order.json"
BESIDE = 4
LEAST_LINES = 8


def places(file: Path) -> list[FoundLine]:
    """The lines of a page in the order of its file, those with a base line or a box of three corners or more."""
    lines = []
    for element in order_in_file(parse(file).getroot()):
        inner: dict[str, Element] = {}
        for child in element.iter():  # the line's own come before those of its words
            inner.setdefault(str(child.tag).rpartition("}")[2], child)
        polygon = numbers(inner, "Coords", "points") or numbers(inner, "Polygon", "POINTS") or box(element)
        baseline = numbers(inner, "Baseline", "points") or numbers({"": element}, "", "BASELINE")
        if len(polygon) > 2:
            xs, ys = zip(*polygon, strict=True)
            foot = ((min(xs), max(ys)), (max(xs), max(ys)))
            if max(ys) - min(ys) > 2 * (max(xs) - min(xs)):
                foot = ((max(xs), max(ys)), (max(xs), min(ys)))
            lines.append(FoundLine(polygon, baseline if len(baseline) > 1 else foot))
    return lines


def numbers(elements: dict[str, Element], tag: str, name: str) -> tuple[tuple[float, float], ...]:
    values = [float(value) for value in re.findall(r"-?[\d.]+", elements[tag].get(name, ""))] if tag in elements else []
    return tuple(zip(values[::2], values[1::2], strict=len(values) % 2 == 0))


def box(line: Element) -> tuple[tuple[float, float], ...]:
    x, y, w, h = (float(line.get(side, 0)) for side in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
    return ((x, y), (x + w, y), (x + w, y + h), (x, y + h)) if w and h else ()


def beside(lines: list[FoundLine]) -> int:
    """How many lines have another one beside them: they share half of the height of the lower one."""
    boxes = [box_of(line.polygon) for line in lines]
    return sum(
        any(
            (right <= other_left or other_right <= left)
            and min(bottom, other_bottom) - max(top, other_top) > min(bottom - top, other_bottom - other_top) / 2
            for other_left, other_top, other_right, other_bottom in boxes
        )
        for left, top, right, bottom in boxes
    )


def downwards(lines: list[FoundLine]) -> list[int]:
    boxes = [box_of(line.polygon) for line in lines]
    return sorted(range(len(lines)), key=lambda i: boxes[i][1] + boxes[i][3])


def pairs_right(order: list[int]) -> int:
    return sum(b == a + 1 for a, b in pairwise(order))


def pages(folder: Path) -> Iterator[tuple[Path, list[FoundLine]]]:
    for file in list_pages(folder, recursive=True):
        lines = places(file)
        if len(lines) >= LEAST_LINES:
            yield file, lines


def measure(folder: Path) -> dict[str, Any]:
    rows = []
    for file, lines in pages(folder):
        blocks = reading_order(lines)
        right = pairs_right([i for block in blocks for i in block])
        rows.append(
            {
                "page": file.stem,
                "pairs": len(lines) - 1,
                "right": right,
                "downwards": pairs_right(downwards(lines)),
                "columns": beside(lines) >= BESIDE,
                "blocks": len(blocks),
            }
        )
    return {"pages": rows}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    pairs = sum(row["pairs"] for row in rows)
    shares = {name: sum(row[name] for row in rows) / max(1, pairs) for name in ("right", "downwards")}
    return {"pages": len(rows), "pairs": pairs, **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for folder in args.folders:
        rows = measure(folder)["pages"]
        kinds = {
            "columns or notes": [r for r in rows if r["columns"]],
            "one column": [r for r in rows if not r["columns"]],
        }
        found[folder.name] = {kind: summary(of_kind) for kind, of_kind in kinds.items()}
        print(folder.name, found[folder.name], flush=True)
    print(write_json(RESULT, {"collections": found, "commit": git_commit()}))


if __name__ == "__main__":
    main()
