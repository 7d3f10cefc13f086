"""Lines at a right angle to their page: `python -m benchmarks.text.right_angles FOLDER crnn.french gcsa_ocr_tiny.print tesseract rapidocr`.

FOLDER holds the PDF files of `PAGES`, of public repositories: figures with the names of their axes, forms, tables, notes on the edge of the
sheet. They are rendered at `DPI`; what their lines at a right angle say, and where they stand, is in the PDF. A line is found where the text
that a system has in its place has at most half of the characters wrong. Rows of other systems stay. `--kraken PYTHON` measures weights on
the lines that kraken finds, in an environment that has it.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
from pypdfium2 import raw

from benchmarks.text.page_rivals import joined
from benchmarks.text.rivals import cpu_seconds, run_tesseract
from gcsa._utils.atomic import write_json
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.pages.page_xml import read_page
from gcsa.training.results import git_commit, machine

RESULT = Path(__file__).parents[2] / "benchmarks/results/pages/right_angles.json"
PAGES = {
    "UglyToad/PdfPig": {
        "2108.11480": 0,
        "GHOSTSCRIPT-699178-0": 0,
        "GHOSTSCRIPT-699488-0": 0,
        "ICML03-081": 3,
        "iron-ore-q2-q3-2013": 2,
        "ssm2163": 6,
    },
    "Unstructured-IO/unstructured": {"layout-parser-paper-fast": 0, "multi-column-2p": 0},
    "docling-project/docling": {
        "dsv3_performance": 0,
        "needle_in_a_haystack": 0,
        "pca-comparison": 0,
        "redp5110_sampled": 8,
    },
    "mozilla/pdf.js": {"issue12295": 0},
    "pdfminer/pdfminer.six": {"f1040nr": 0, "issue-1008-inline-ascii85": 0},
}
"""One page of each document, counted from 0: those in Latin letters of 1,276 files whose first ten pages have twelve letters or more at a right
angle, on a page that is upright for the most part, and 200 upright characters, where these lines are visible."""
DPI = 300
LEAST = 4
"""Letters and digits of a line."""

Box = tuple[float, float, float, float]
Lines = list[tuple[Box, str]]


@dataclass
class Truth:
    """A line: its box in pixels, from the upper left corner; whether it is read upwards; its text."""

    box: Box
    upwards: bool
    text: str


def truths(page: Any) -> list[Truth]:
    """The lines of a page at a right angle: neighbouring characters in the order of the file, in one column of characters."""
    text, scale = page.get_textpage(), DPI / 72
    edge, _, _, high = page.get_bbox()  # what is rendered
    lines: list[tuple[list[Box], list[str], bool]] = []
    for i in range(text.count_chars()):
        letter, angle = chr(raw.FPDFText_GetUnicode(text.raw, i)), raw.FPDFText_GetCharAngle(text.raw, i)
        upwards = abs(angle - 3 * math.pi / 2) < 0.03
        if letter.isspace() or letter == "\0":
            if lines and lines[-1][1][-1] != " ":
                lines[-1][1].append(" ")
            continue
        if not upwards and abs(angle - math.pi / 2) > 0.03:
            continue
        left, bottom, right, top = text.get_charbox(i, loose=True)
        box = (left - edge) * scale, (high - top) * scale, (right - edge) * scale, (high - bottom) * scale
        if lines and lines[-1][2] == upwards and _follows(lines[-1][0][-1], box, upwards):
            lines[-1][0].append(box)
            lines[-1][1].append(letter)
        else:
            lines.append(([box], [letter], upwards))
    found = []
    for boxes, letters, upwards in lines:
        corners = np.array(boxes)
        line = "".join(letters).strip()
        if sum(letter.isalnum() for letter in line) >= LEAST:
            whole = (*corners[:, :2].min(0).tolist(), *corners[:, 2:].max(0).tolist())
            found.append(Truth(whole, upwards, line))
    return found


def _follows(before: Box, box: Box, upwards: bool) -> bool:
    width = max(before[2] - before[0], box[2] - box[0])
    gap = before[1] - box[3] if upwards else box[1] - before[3]
    return abs(before[0] + before[2] - box[0] - box[2]) < width and -width < gap < 1.5 * width


def in_place(truth: Truth, lines: Lines) -> str:
    """The text of the lines, or words, whose middle is in the place of a line, in its direction."""
    left, top, right, bottom = truth.box
    edge = 0.3 * (right - left)
    inside = [
        (box[1] + box[3], text)
        for box, text in lines
        if left - edge <= (box[0] + box[2]) / 2 <= right + edge and top - edge <= (box[1] + box[3]) / 2 <= bottom + edge
    ]
    return " ".join(text for _, text in sorted(inside, reverse=truth.upwards))


def network(weights: str, python: str, *options: str) -> Callable[[Path], Lines]:
    def read(page: Path) -> Lines:
        out = page.with_suffix(".xml")
        command = [python, "-m", "gcsa", "transcribe", weights, str(page), "--format", "alto", "--output", str(out)]
        subprocess.run([*command, "--overwrite", *options], check=True, capture_output=True)
        lines = []
        for line in read_page(out):
            if line.polygon is not None and line.text:
                corners = np.array(line.polygon)
                lines.append(((*corners.min(0).tolist(), *corners.max(0).tolist()), line.text))
        return lines

    return read


def tesseract(page: Path) -> Lines:
    lines = []
    for row in run_tesseract(str(page), "-", "-l", "eng+fra", "--psm", "3", "tsv").splitlines()[1:]:
        level, *_, left, top, width, height, _, text = row.split("\t", 11)
        if level == "5" and text.strip():
            x, y = float(left), float(top)
            lines.append(((x, y, x + float(width), y + float(height)), text))
    return lines


def rapidocr(page: Path) -> Lines:
    from rapidocr import RapidOCR

    found = RapidOCR()(str(page))
    if found.boxes is None:
        return []
    return [
        ((*box.min(0).tolist(), *box.max(0).tolist()), text)
        for box, text in zip(np.array(found.boxes), found.txts, strict=True)
    ]


def pages(folder: Path, into: Path) -> Iterator[tuple[str, Path, list[Truth]]]:
    for documents in PAGES.values():
        for name, number in documents.items():
            page = pypdfium2.PdfDocument(next(folder.rglob(f"{name}.pdf")))[number]
            image = into / f"{name}.png"
            page.render(scale=DPI / 72).to_pil().convert("RGB").save(image, compress_level=1)
            yield name, image, truths(page)


def closed(text: str) -> str:
    """Without spaces, which PDF files put between letters, too."""
    return joined(text).replace(" ", "")


def measure(read: Callable[[Path], Lines], scans: list[tuple[str, Path, list[Truth]]]) -> dict[str, Any]:
    """Lines that are found and errors in all of them, those that are not found too."""
    meant, texts, by_page = [], [], {}
    began = cpu_seconds()
    for name, image, lines in scans:
        said = read(image)
        right = [closed(line.text) for line in lines]
        there = [closed(in_place(line, said)) for line in lines]
        errors = [text_scores([text], [true]).cer for text, true in zip(there, right, strict=True)]
        by_page[name] = [sum(error <= 0.5 for error in errors), len(lines)]
        meant += right
        texts += there
        print(name, by_page[name], list(zip(right, there, strict=True))[:4], flush=True)
    scores = text_scores(texts, meant)
    found = sum(right for right, _ in by_page.values())
    return {
        "lines": len(meant),
        "found": found,
        "cer": scores.cer,
        "cer_interval": scores.cer_interval,
        "pages": by_page,
        "cpu_seconds": (cpu_seconds() - began) / len(scans),
        "commit": git_commit(),
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("systems", nargs="+", help="published weights, tesseract or rapidocr")
    parser.add_argument("--kraken", metavar="PYTHON")
    args = parser.parse_args()
    readers: dict[str, Callable[[Path], Lines]] = {"tesseract": tesseract, "rapidocr": rapidocr}
    readers = {name: readers.get(name) or network(name, sys.executable) for name in args.systems}
    if args.kraken:
        readers = {f"{name}, lines by kraken": network(name, args.kraken, "--lines", "kraken") for name in args.systems}
    content: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        scans = list(pages(args.folder, Path(folder)))
        for name, read in readers.items():
            content[name] = measure(read, scans)
            print(name, {key: content[name][key] for key in ("lines", "found", "cer", "cpu_seconds")}, flush=True)
            write_json(RESULT, content)


if __name__ == "__main__":
    main()
