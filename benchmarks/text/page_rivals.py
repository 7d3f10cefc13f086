"""Others and our weights on whole pages: `python -m benchmarks.text.page_rivals SET FOLDER tesseract rapidocr WEIGHTS ...`. Rows of other
systems stay; one at a time tells its memory too. "rapidocr" is PP-OCRv6 small, with its own reader. With `--kraken`, in an environment that
has it, weights read the lines that kraken finds.

FOLDER holds a folder for each book, with images and the ALTO or PAGE-XML of their lines, as in the repositories that `SETS` names: no
weights were trained on them. A page whose image is missing is left out. Each page is given upright, which ours do not know and
Tesseract is told (`--psm 3`): our text is the same at 90, 180 and 270 degrees. The reference is the text of the lines in the order of
the file. Rows "by kraken" of the set "books" were measured before the text detector was there, by this script.

CER counts a line in another place as missing and as too much. Words are compared as bags, whatever their order. Both in letters of today
(`benchmarks.text.rivals.modern`), which is what Tesseract writes. Seconds are those of the processor on one thread.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
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
from gcsa._utils.errors import UserError
from gcsa._utils.memory import give_back_memory, keep_compiled_kernels, keep_freed_memory
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.pages.inputs import Source, find_lines
from gcsa.tasks.recognition.pages.layout import PageFinder, finder_of
from gcsa.tasks.recognition.pages.page_xml import read_page
from gcsa.training.results import git_commit, machine

RESULT = Path(__file__).parents[2] / "benchmarks/results/pages/rivals.json"
Pages = dict[str, dict[str, tuple[str, ...]]]
BOOKS: Pages = {
    "Gallicorpora/HTR-imprime-17e-siecle, e03cc1b1": {
        "bpt6k1512176r": ("f21", "f82"),
        "btv1b8626243d": ("f38", "f93"),
        "bpt6k56119308": ("f4", "f6"),
        "bpt6k6509381p": ("f13", "f5"),
    },
    "Gallicorpora/HTR-imprime-18e-siecle, f22104fd": {
        "bpt6k70173w": ("bpt6k70173w_f19", "bpt6k70173w_f21"),
        "bpt6k822192": ("bpt6k822192_f2", "bpt6k822192_f6"),
        "bpt6k6495917k": ("bpt6k6495917k_f24", "bpt6k6495917k_f32"),
    },
}
"""Two pages of each, drawn from those with 15 lines or more. (Of an eighth book, bpt6k15120824, the images can no longer be had.) Three are books of the test lines of fr17_18_gallicorpora, the others of none."""
NOTES: Pages = {
    "HTR-United/cremma-16-17-print, 72df865": {
        "lat/bnf-bpt6k533863": tuple(
            f"{name}_default"
            for name in (
                "10_68d2e",
                "11_63332",
                "12_7046b",
                "2_0bd0f",
                "3_41f80",
                "4_266eb",
                "6_84a98",
                "7_fe208",
                "8_237dd",
            )
        ),
    },
    "SETAFDH/HTR-SETAF-LesFaictzJCH, c6c38e34": {
        "FaictzJCH_Lyon_1560": tuple(
            f"{name}_default"
            for name in (
                "12_1517f",
                "14_fab8b",
                "68_c9ee3",
                "69_0e755",
                "72_68da4",
                "76_2325d",
                "77_25a9e",
                "78_8021c",
                "79_41bf1",
                "80_b2a07",
                "81_d460c",
                "83_6a58c",
                "88_10975",
            )
        ),
    },
}
"""All pages with five or more lines of notes in the margin, of a Latin book of the 16th century and of a French one of about 1560."""
SETS = {"books": BOOKS, "notes": NOTES}

TESSERACT, RAPIDOCR = "tesseract", "rapidocr"

Read = Callable[[Path], str]


def tesseract(languages: str, mode: int) -> Read:
    return lambda page: run_tesseract(str(page), "-", "-l", languages, "--psm", str(mode))


def rapidocr() -> Read:
    from rapidocr import RapidOCR

    engine = RapidOCR()
    return lambda page: "\n".join(engine(str(page)).txts or ())


def network(weights: str, finder: str) -> Read:
    predictor: Any = gcsa.load(weights).fold()
    find = PageFinder(find=finder_of(finder))

    def read(page: Path) -> str:
        (transcripts,) = predictor.transcribe([find_lines(Source(page), find)])
        give_back_memory()  # as the command does
        return "\n".join(transcript.reading.text for transcript in transcripts if transcript.reading is not None)

    return read


def references(folder: Path, pages: Pages) -> Iterator[tuple[str, Path, str]]:
    """(book, image, text) of each page."""
    for book, names in (item for books in pages.values() for item in books.items()):
        for name in names:
            try:
                lines = read_page(folder / book / f"{name}.xml")
            except UserError as error:
                print(error)
                continue
            yield book, lines[0].image, " ".join(line.text for line in lines)


def joined(text: str) -> str:
    """A page as one line in letters of today."""
    return modern(re.sub(r"\s+", " ", text).strip())


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.casefold()))


def measure(read: Read, pages: list[tuple[str, Path, str]]) -> dict[str, Any]:
    """Errors of a system on pages."""
    meant, texts, seconds = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for book, image, reference in pages:
            scan = Path(folder) / "page.png"
            with Image.open(image) as picture:
                picture.convert("RGB").save(scan, compress_level=1)
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
    parser.add_argument("set", choices=SETS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("systems", nargs="+", help=f"published weights, {TESSERACT} or {RAPIDOCR}")
    parser.add_argument("--kraken", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    keep_compiled_kernels()
    pages = list(references(args.folder, SETS[args.set]))
    names = [f"{book}/{image.stem}" for book, image, _ in pages]
    about = {
        "commit": git_commit(),
        "machine": machine(),
        "pages": names,
        "characters": [len(joined(text)) for *_, text in pages],
    }
    content: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    rows = content.setdefault(args.set, {})
    for name in args.systems:
        peers = {TESSERACT: lambda: tesseract("fra+lat", 3), RAPIDOCR: rapidocr}
        read = peers[name]() if name in peers else network(name, "kraken" if args.kraken else "ppocr")
        row = measure(read, pages) | about
        if name != TESSERACT:
            row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        rows[f"{name}, lines by kraken" if args.kraken else name] = row
        print(name, row, flush=True)
        print(write_json(RESULT, content))


if __name__ == "__main__":
    main()
