"""docorient, which lays pages upright, on pages scanned in four orientations:

    uv run --with docorient==0.4.1 python -m benchmarks.peers.docorient_peer

It finds the direction of the lines, and by a network whether the page is upside down. A page is answered alike where all four scans are
laid the same way, and rightly where that is upright. The pages are three whole ones, and blocks of 25 validation lines of French and
of Fraktur print, each line under the other on white. Needs GCSA_DATA; writes benchmarks/results/symmetry/docorient.json.
"""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from benchmarks.common import RESULTS, keep
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.data.lines import list_lines

FILE = RESULTS / "symmetry/docorient.json"
PAGES = ("fr_print_page.jpg", "170025120000003,0074.jpg", "arabic.webp")
SCRIPTS = ("fr17_roman_print", "de19_fraktur_print")
LINES = 25
"""Of a block."""
QUARTER_TURNS = (None, Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)


def block(lines: list[Image.Image]) -> Image.Image:
    """Lines under each other, from the left, on white."""
    page = Image.new("L", (max(line.width for line in lines), sum(line.height for line in lines)), 255)
    top = 0
    for line in lines:
        page.paste(line, (0, top))
        top += line.height
    return page


def upright_pages() -> Iterator[tuple[str, Image.Image]]:
    """The name of a kind of page, and the page."""
    for name in PAGES:
        yield "whole pages", Image.open(data_root(None) / "pages" / name).convert("RGB")
    for script in SCRIPTS:
        lines = [
            Image.open(line.image).convert("L") for line in list_lines(data_root(None) / "ocr_lines" / script, ("val",))
        ]
        for start in range(0, len(lines) - LINES + 1, LINES):
            yield script, block(lines[start : start + LINES]).convert("RGB")


def judge(page: Image.Image, correct: Callable[[Image.Image], Image.Image]) -> dict[str, int]:
    """Of an upright page: 1 for the page, whether its four scans are laid alike, whether all upright, and how many upright."""
    scans = [page if turn is None else page.transpose(turn) for turn in QUARTER_TURNS]
    laid = [np.asarray(correct(scan)) for scan in scans]
    upright = [np.array_equal(one, np.asarray(page)) for one in laid]
    alike = all(np.array_equal(one, laid[0]) for one in laid)
    return {"pages": 1, "alike": int(alike), "right": int(all(upright)), "scans_right": sum(upright)}


def main() -> None:
    from docorient import correct_image

    found: dict[str, Counter[str]] = {}
    for kind, page in upright_pages():
        found.setdefault(kind, Counter()).update(judge(page, correct_image))
        print(kind, dict(found[kind]), flush=True)
    keep(FILE, {"version": importlib.metadata.version("docorient"), "kinds": found})


if __name__ == "__main__":
    main()
