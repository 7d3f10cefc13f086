"""Tesseract and our weights on whole pages: `python -m benchmarks.text.page_rivals FOLDER tesseract WEIGHTS ...`, with
kraken and Tesseract. Rows of other systems stay.

FOLDER holds a folder for each book, with images and the ALTO or PAGE-XML of their lines. `BOOKS` are those of the table: no weights were
trained on them. Each page is given upright and rotated by 90 degrees; Tesseract finds the orientation by its own detection (`--psm 1`), ours by
the network for pages and by reading. The reference is the text of the lines in the order of the file.

CER counts a line in another place as missing and as too much. Words are compared as bags, whatever their order. Both in letters of today
(`benchmarks.text.rivals.modern`), which is what Tesseract writes. Seconds are those of the processor on one thread.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import gcsa
from benchmarks.text.rivals import cpu_seconds, modern, run_tesseract
from gcsa._utils.atomic import write_json
from gcsa.cli.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.pages.page_xml import list_pages, read_page
from gcsa.training.results import git_commit, machine

RESULT = Path(__file__).parents[2] / "benchmarks/results/pages/rivals.json"
BOOKS = {
    "Gallicorpora/HTR-imprime-17e-siecle, e03cc1b1": (
        "bpt6k1512176r",
        "btv1b8626243d",
        "bpt6k56119308",
        "bpt6k6509381p",
    ),
    "Gallicorpora/HTR-imprime-18e-siecle, f22104fd": ("bpt6k15120824", "bpt6k70173w", "bpt6k822192", "bpt6k6495917k"),
}
"""Two pages of each, drawn from those with 15 lines or more. Three are books of the test lines of fr17_18_gallicorpora, the others of none."""

TESSERACT = "tesseract"

Read = Callable[[Path], str]


def tesseract(languages: str, mode: int) -> Read:
    return lambda page: run_tesseract(str(page), "-", "-l", languages, "--psm", str(mode))


def network(weights: str, orientation: str) -> Read:
    predictor: Any = gcsa.load(weights)
    return lambda page: "\n".join(reading.text for reading in predictor.predict(page, orientation))


def references(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """(book, image, text) of each page."""
    for book in (book for books in BOOKS.values() for book in books):
        for page in list_pages(folder / book):
            lines = read_page(page)
            yield book, lines[0].image, " ".join(line.text for line in lines)


def joined(text: str) -> str:
    """A page as one line in letters of today."""
    return modern(re.sub(r"\s+", " ", text).strip())


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.casefold()))


def measure(read: Read, pages: list[tuple[str, Path, str]], quarter_turns: int) -> dict[str, Any]:
    """Errors of a system on pages rotated by so many quarter turns."""
    meant, texts, seconds = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for book, image, reference in pages:
            scan = Path(folder) / "page.png"
            with Image.open(image) as picture:
                picture.convert("RGB").rotate(90 * quarter_turns, expand=True).save(scan)
            began = cpu_seconds()
            texts.append(joined(read(scan)))
            seconds.append(cpu_seconds() - began)
            meant.append(joined(reference))
            print(book, image.name, round(text_scores([texts[-1]], [meant[-1]]).cer, 4), flush=True)
    scores = text_scores(texts, meant)
    bags = [(words(text), words(reference)) for text, reference in zip(texts, meant, strict=True)]
    found = sum((read & true).total() for read, true in bags)
    return {
        "cer": scores.cer,
        "cer_interval": scores.cer_interval,
        "cer_pages": [text_scores([text], [reference]).cer for text, reference in zip(texts, meant, strict=True)],
        "words_found": found / sum(true.total() for _, true in bags),
        "words_right": found / max(1, sum(read.total() for read, _ in bags)),
        "cpu_seconds": sum(seconds) / len(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("systems", nargs="+", help=f"published weights, or {TESSERACT}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    keep_compiled_kernels()
    pages = list(references(args.folder))
    books = len({book for book, *_ in pages})
    about = {"commit": git_commit(), "machine": machine(), "pages": len(pages), "books": books}
    rows: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    for name in args.systems:
        upright, turned = (
            (tesseract("fra+lat", 3), tesseract("fra+lat", 1))
            if name == TESSERACT
            else (network(name, "upright"), network(name, "any"))
        )
        rows[name] = {"upright": measure(upright, pages, 0), "rotated": measure(turned, pages, 1), **about}
        print(name, rows[name], flush=True)
    print(write_json(RESULT, rows))


if __name__ == "__main__":
    main()
